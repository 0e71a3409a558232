"""The published code's caches token by token, from the audit of its departures: slow, plain, with Python's own heap.

Written independently of `marconi_sim/core/published/`, which it checks. Switches are not modelled: everything is as
in the published code, but a partial edge match is not descended from (row A1).
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from naive import Request, Shape, Tokens, common_length


class Replay(NamedTuple):
    """What came of a replay; `first_eviction` is the number of the request, from 1."""

    reused: list[int]
    states: int
    kv_tokens: int
    evictions: int
    peak_bytes: int
    first_eviction: int | None
    tuned_alpha: float | None = None


class Node:
    """A cache node, or a block: the tokens on the edge above it."""

    def __init__(self, key: Tokens, parent: Node | None, time: int) -> None:
        self.key = key
        self.parent = parent
        self.time = time
        self.children: dict[int | Tokens, Node] = {}

    def __lt__(self, other: Node) -> bool:
        return self.time < other.time

    def depth(self) -> int:
        return len(self.key) + (self.parent.depth() if self.parent else 0)

    def walk(self) -> list[Node]:
        """Return all nodes below this one, depth first, in order of insertion."""
        found = []
        for child in self.children.values():
            found += [child, *child.walk()]
        return found


class Cache:
    """What the trees and the blocks have in common."""

    def __init__(self, shape: Shape, capacity: int) -> None:
        self.shape = shape
        self.capacity = capacity
        self.root = Node((), None, 0)
        self.now = 0
        self.evictions = 0
        self.peak = 0

    def size(self) -> int:
        nodes = self.root.walk()
        tokens = sum(len(node.key) for node in nodes)
        return tokens * self.shape.kv_bytes_per_token + len(nodes) * self.shape.state_bytes

    def evict_leaves(self, wanted: float) -> None:
        """Evict the least recently used leaves, with the ties of a binary heap."""
        heap = [node for node in self.root.walk() if not node.children]
        heapq.heapify(heap)
        freed = 0
        while freed < wanted and heap:
            victim = heapq.heappop(heap)
            freed += self.own_bytes(victim)
            self.drop(victim)
            parent = victim.parent
            if parent is not self.root and not parent.children:
                heapq.heappush(heap, parent)

    def own_bytes(self, node: Node) -> int:
        return len(node.key) * self.shape.kv_bytes_per_token + self.shape.state_bytes

    def drop(self, node: Node) -> None:
        siblings = node.parent.children
        del siblings[next(key for key, child in siblings.items() if child is node)]
        self.evictions += 1


class Tree(Cache):
    """`sglang+` and, with an alpha, `marconi`: every node holds a state."""

    def __init__(self, shape: Shape, capacity: int, alpha: float | None) -> None:
        super().__init__(shape, capacity)
        self.alpha = alpha

    def match(self, tokens: Tokens) -> tuple[list[Node], Node | None, int]:
        """Return (fully matched nodes, the one whose edge is matched in part, matched tokens)."""
        path, position = [self.root], 0
        while position < len(tokens):
            child = path[-1].children.get(tokens[position])
            if child is None:
                break
            same = common_length(child.key, tokens[position:])
            position += same
            if same < len(child.key):
                return path, child, position
            path.append(child)
        return path, None, position

    def look_up(self, tokens: Tokens) -> tuple[list[Node], Node | None, int]:
        self.now += 1
        path, partial, matched = self.match(tokens)
        touched = [path[-1]] if self.alpha is not None else [*path, *([partial] if partial else [])]
        for node in touched:
            node.time = self.now
        return path, partial, matched

    def reuse(self, tokens: Tokens) -> int:
        return self.look_up(tokens)[0][-1].depth()

    def insert(self, tokens: Tokens) -> bool:
        """Insert a sequence; return whether room had to be made."""
        self.now += 1
        _, partial, matched = self.look_up(tokens)
        new = self.shape.kv_bytes_per_token * (len(tokens) - matched)
        wanted = self.size() + new + self.shape.state_bytes * (2 if partial else 1) - self.capacity
        if wanted > 0:
            self.now += 1
            if self.alpha is None:
                self.evict_leaves(wanted)
            else:
                self.evict_scored(wanted)
        path, partial, matched = self.match(tokens)
        if self.alpha is None:
            for node in path:
                node.time = self.now
        if partial:
            path.append(self.split(partial, matched - path[-1].depth()))
        if matched < len(tokens):
            path[-1].children[tokens[matched]] = Node(tokens[matched:], path[-1], self.now)
        self.peak = max(self.peak, self.size())
        return wanted > 0

    def split(self, node: Node, length: int) -> Node:
        upper = Node(node.key[:length], node.parent, self.now)
        node.parent.children[node.key[0]] = upper
        node.key, node.parent = node.key[length:], upper
        upper.children[node.key[0]] = node
        return upper

    def efficiency(self, node: Node) -> float:
        shape, total = self.shape, node.depth()
        above = total - len(node.key)

        def attention(L: int, layers: int) -> int:
            return layers * (8 * L * shape.D**2 + 4 * L**2 * shape.D)

        def ssm(L: int) -> int:
            return shape.ssm * (12 * L * shape.D**2 + 16 * L * shape.D * shape.N + 10 * L * shape.D)

        saved = attention(total, shape.attention) - attention(above, shape.attention)
        saved += ssm(total) - ssm(above)
        saved += shape.mlp * 16 * total * shape.D**2 - attention(above, shape.mlp)
        size = shape.state_bytes + shape.kv_bytes_per_token * total
        return saved / size

    def evict_scored(self, wanted: float) -> None:
        freed = 0
        while freed < wanted:
            candidates = [node for node in self.root.walk() if len(node.children) <= 1]
            if not candidates:
                return
            recency = normalised([1 / (self.now - node.time) for node in candidates])
            value = normalised([self.efficiency(node) for node in candidates])
            scores = [r + self.alpha * v for r, v in zip(recency, value, strict=True)]
            victim = candidates[scores.index(min(scores))]
            if victim.children:
                (child,) = victim.children.values()
                freed += self.shape.state_bytes
                child.key, child.parent = victim.key + child.key, victim.parent
                child.time = max(child.time, victim.time)
                victim.parent.children[child.key[0]] = child
                self.evictions += 1
            else:
                freed += self.own_bytes(candidates[-1])
                self.drop(victim)


def normalised(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    return [1.0 if low == high else (value - low) / (high - low) for value in values]


class Blocks(Cache):
    """`vllm+`: a tree of blocks, the last of a sequence may be partial."""

    def __init__(self, shape: Shape, capacity: int, block: int) -> None:
        super().__init__(shape, capacity)
        self.block = block

    def match(self, tokens: Tokens) -> tuple[list[Node], Node | None, int]:
        """Return (full blocks, the partial block after them, matched tokens)."""
        path, position = [self.root], 0
        while (key := tokens[position : position + self.block]) in path[-1].children:
            if len(key) < self.block:
                break
            path.append(path[-1].children[key])
            position += self.block
        for child in path[-1].children.values():
            rest = tokens[position : position + len(child.key)]
            if len(child.key) < self.block and child.key == rest:
                return path, child, position + len(rest)
        return path, None, position

    def look_up(self, tokens: Tokens) -> tuple[list[Node], Node | None, int]:
        self.now += 1
        found = self.match(tokens)
        for node in found[0]:
            node.time = self.now
        return found

    def reuse(self, tokens: Tokens) -> int:
        return self.look_up(tokens)[2]

    def insert(self, tokens: Tokens) -> bool:
        self.now += 1
        path, partial, _ = self.look_up(tokens)
        accessed = len(path) + (1 if partial else 0)  # the root is one of them
        extra = len(tokens) - self.block * accessed
        new = extra * self.shape.kv_bytes_per_token + extra / self.block * self.shape.state_bytes
        wanted = self.size() + new - self.capacity
        if wanted > 0:
            self.now += 1
            self.evict_leaves(wanted)
        path, partial, _ = self.match(tokens)
        position = self.block * (len(path) - 1)
        for node in path:
            node.time = self.now
        if partial:  # more tokens are poured into it, in its place among its siblings
            key = tokens[position : position + self.block]
            siblings = path[-1].children
            path[-1].children = {
                (key if node is partial else old): node for old, node in siblings.items()
            }
            partial.key, partial.time = key, self.now
            path.append(partial)
            position += len(key)
        while position < len(tokens):
            key = tokens[position : position + self.block]
            path[-1].children[key] = Node(key, path[-1], self.now)
            path.append(path[-1].children[key])
            position += len(key)
        self.peak = max(self.peak, self.size())
        return wanted > 0


def _run(
    cache: Tree | Blocks, requests: list[Request], alpha_at: dict[int, float]
) -> tuple[list[int], int | None]:
    """Return (reused tokens, number of the first request for which room had to be made)."""
    reused, first = [], None
    for number, request in enumerate(requests, start=1):
        reused.append(cache.reuse(request.input))
        if number in alpha_at:
            cache.alpha = alpha_at[number]
        if cache.insert(request.input + request.output) and first is None:
            first = number
    return reused, first


def replay(
    policy: str, requests: list[Request], capacity: int, shape: Shape, alpha: float = 0.0, block: int = 32
) -> Replay:  # fmt: skip
    """Replay with a fixed alpha."""
    return _replay(policy, requests, capacity, shape, alpha, block, {})


def _replay(
    policy: str,
    requests: list[Request],
    capacity: int,
    shape: Shape,
    alpha: float,
    block: int,
    alpha_at: dict[int, float],
) -> Replay:
    cache: Tree | Blocks = Blocks(shape, capacity, block)
    if policy != "vllm+":
        cache = Tree(shape, capacity, alpha if policy == "marconi" else None)
    reused, first = _run(cache, requests, alpha_at)
    nodes = cache.root.walk()
    tokens = sum(len(node.key) for node in nodes)
    return Replay(reused, len(nodes), tokens, cache.evictions, cache.peak, first)


def bootstrap(
    requests: list[Request], capacity: int, shape: Shape, multiplier: int, last: int
) -> Replay:
    """Replay `marconi` with its tuner, which counts the last so many requests of its window."""
    untuned = replay("marconi", requests, capacity, shape)
    if untuned.first_eviction is None:
        return untuned
    end = multiplier * untuned.first_eviction
    if end > len(requests) or multiplier == 1:
        return untuned
    saved = {}
    for tenths in range(21):
        trial = replay("marconi", requests[:end], capacity, shape, tenths / 10)
        saved[tenths / 10] = sum(shape.flops(tokens) for tokens in trial.reused[-last:])
    chosen = max(saved, key=lambda alpha: saved[alpha])
    tuned = _replay("marconi", requests, capacity, shape, 0.0, 32, {end: chosen})
    return tuned._replace(tuned_alpha=chosen)
