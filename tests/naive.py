"""The cache policies of DESIGN.md sections 5 and 6, token by token, in plain Python.

The reference that the kernels are compared with. It shares no code with `marconi_sim`: sequences
are tuples of tokens, the radix tree is made of objects and dicts, every eviction scans every node,
and miss causes come from comparing each input with all earlier sequences.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

CAUSES = (
    "cold",
    "kv_evicted",
    "unfinished",
    "state_evicted",
    "no_checkpoint",
    "grid",
    "last_token",
    "not_admitted",
)
POLICIES = ("vanilla", "vllm+", "sglang+", "marconi", "marconi_bootstrap", "unbounded", "ceiling")
ALPHAS = tuple(step / 10 for step in range(21))

Tokens = tuple[int, ...]


class Request(NamedTuple):
    """One request; a trace is a list of them in processing order. `arrival` is in seconds."""

    session: int
    turn: int
    arrival: float
    input: Tokens
    output: Tokens


class Shape(NamedTuple):
    """A model in the paper's accounting (Table 1 of arXiv 2411.19379, FP16): layer counts, D, N."""

    attention: int
    ssm: int
    mlp: int
    D: int
    N: int

    @property
    def kv_bytes_per_token(self) -> int:
        return self.attention * 4 * self.D

    @property
    def state_bytes(self) -> int:
        """Bytes of one recurrent state of all layers: 2 D N and four convolution columns each."""
        D, N = self.D, self.N
        return self.ssm * (2 * D * N + 2 * 4 * (2 * D + 2 * N))

    def flops(self, L: int) -> int:
        """FLOPs of prefilling L tokens from nothing."""
        D, N = self.D, self.N
        return (
            self.attention * (8 * L * D**2 + 4 * L**2 * D)
            + self.mlp * 16 * L * D**2
            + self.ssm * (12 * L * D**2 + 16 * L * D * N + 10 * L * D)
        )


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many leading tokens a and b share."""
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    return next(i for i in range(shorter) if a[i] != b[i])


def longest_shared(tokens: Tokens, sequences: Iterable[Tokens]) -> int:
    """Return the length of the longest prefix that `tokens` shares with one of `sequences`."""
    best = 0
    for other in sequences:
        if other[: best + 1] == tokens[: best + 1]:
            best = common_length(tokens, other)
    return best


class LookUp(NamedTuple):
    """Resident prefix, reusable prefix, and the positions of the input that may be checkpointed.

    Attributes:
        branch_point: where inserting the input would split an edge.
        input_end: how long the input is.
    """

    matched: int
    reused: int
    branch_point: int | None = None
    input_end: int = 0


class History:
    """Everything that ever happened, for the miss causes.

    Attributes:
        sequences: every sequence of the trace so far.
        admitted: those that were inserted, and so were resident at one time.
        states: every prefix that ever had a state, as far as a radix cache told.
    """

    def __init__(self) -> None:
        self.sequences: list[Tokens] = []
        self.admitted: list[Tokens] = []
        self.states: set[Tokens] = set()

    def record(self, sequence: Tokens, checkpoints: set[int] | None) -> None:
        self.sequences.append(sequence)
        if checkpoints is not None:
            self.admitted.append(sequence)
            self.states.update(sequence[:depth] for depth in checkpoints)


class Entry(NamedTuple):
    """What a policy's `value` may look at.

    Attributes:
        flops: F(depth) - F(parent depth).
        hits: look-ups that reused this node's state, the present one included.
        floor: score of the last victim, 0 before the first.
    """

    depth: int
    parent_depth: int
    edge_kv_bytes: int
    state_bytes: int
    flops: int
    hits: int
    floor: float


class Node:
    """A node of the radix tree with the edge that leads to it."""

    def __init__(self, parent: Node | None, edge: Tokens, time: float, created: int) -> None:
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.edge = edge
        self.depth: int = len(edge) + (parent.depth if parent else 0)
        self.state = False
        self.time = time
        self.created = created
        self.hits = 0
        self.value = 0.0


def flops_per_byte(entry: Entry) -> float:
    """Return marconi's efficiency; 0 for an entry without bytes (a model without attention)."""
    size = entry.edge_kv_bytes + entry.state_bytes
    return entry.flops / size if size else 0.0


def min_max(values: list[float]) -> list[float]:
    """Map the smallest value to 0 and the largest to 1; all equal to 1."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 1.0 for value in values]


class RadixCache:
    """`sglang+`, `marconi` and relatives.

    Args:
        capacity_bytes: bytes of KV and states together; may be infinite.
        shape: the model.
        policy: `sglang+` or `marconi`; sets the other arguments, each of which can be replaced.
        alpha: weight of the value in marconi's score.
        admits: which positions of a sequence get a state: `branch_point`, `input_end`,
            `sequence_end`, `interval`, `chunk_end`.
        interval: tokens; with `interval` every multiple of it gets one, beyond what was reused.
        chunk: tokens; with `chunk_end` the ends of chunks get one, in which the rest of the input
            is computed after what was reused.
        grid: tokens; positions other than multiples of the interval are rounded down to it, and
            are none if they fall below what was reused.
        evicts: which nodes can be victims: `leaves` or those with `at_most_one_child`.
        touches: what is touched beside new states: the `reused_node` by a look-up, or the whole
            `path` by look-ups and insertions.
        value: entry -> number, computed when the node is touched, when its edge changes and when it
            gains or loses a child.
        score: (recency, value) -> number; the smallest is evicted first.
        normalised: whether recency and value are min-max normalised over the candidates; if not,
            the recency is the time.
    """

    def __init__(
        self,
        capacity_bytes: float,
        shape: Shape,
        policy: str = "marconi",
        *,
        alpha: float = 0.0,
        admits: Iterable[str] = ("branch_point", "sequence_end"),
        interval: int = 0,
        chunk: int = 0,
        grid: int = 1,
        evicts: str | None = None,
        touches: str | None = None,
        value: Callable[[Entry], float] | None = None,
        score: Callable[[float, float], float] | None = None,
        normalised: bool | None = None,
    ) -> None:
        marconi = {"marconi": True, "sglang+": False}[policy]
        self.capacity_bytes = capacity_bytes
        self.shape = shape
        self.alpha = alpha
        self.admits = frozenset(admits)
        self.interval = interval
        self.chunk = chunk
        self.grid = grid
        self.evicts = evicts or ("at_most_one_child" if marconi else "leaves")
        self.touches = touches or ("reused_node" if marconi else "path")
        self._value = value or (flops_per_byte if marconi else None)
        self._score = score
        self._normalised = marconi if normalised is None else normalised
        self.clock = 0
        self.root = Node(None, (), 0, 0)
        self.kv_tokens = 0
        self.states = 0
        self.evictions = 0
        self.bypassed = 0
        self.floor = 0.0
        self._insertions = 0

    @property
    def bytes(self) -> int:
        return self._size(self.kv_tokens, self.states)

    def _size(self, kv_tokens: int, states: int) -> int:
        return kv_tokens * self.shape.kv_bytes_per_token + states * self.shape.state_bytes

    def nodes(self) -> Iterator[Node]:
        """Yield every node but the root."""
        waiting = list(self.root.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())

    def _walk(self, tokens: Tokens) -> tuple[list[Node], int]:
        """Return the fully matched nodes, from the top, and how many tokens are resident."""
        path: list[Node] = []
        node = self.root
        while node.depth < len(tokens) and tokens[node.depth] in node.children:
            child = node.children[tokens[node.depth]]
            same = common_length(child.edge, tokens[node.depth : child.depth])
            if same < len(child.edge):
                return path, node.depth + same
            path.append(child)
            node = child
        return path, node.depth

    def look_up(self, tokens: Tokens, now: float | None = None) -> LookUp:
        """Look an input up; `now` replaces the logical clock."""
        self.clock += 1
        time = self.clock if now is None else now
        path, matched = self._walk(tokens)
        holders = [node for node in path if node.state]
        if holders:
            holders[-1].hits += 1
        for node in path if self.touches == "path" else holders[-1:]:
            self._touch(node, time)
        deepest = path[-1].depth if path else 0
        return LookUp(
            matched=matched,
            reused=holders[-1].depth if holders else 0,
            branch_point=matched if matched > deepest else None,
            input_end=len(tokens),
        )

    def _positions(self, tokens: Tokens, found: LookUp) -> set[int]:
        """Return the depths of a sequence that get a state."""
        ends = set()
        if "branch_point" in self.admits and found.branch_point is not None:
            ends.add(found.branch_point)
        if "input_end" in self.admits:
            ends.add(found.input_end)
        if "sequence_end" in self.admits:
            ends.add(len(tokens))
        positions = {end // self.grid * self.grid for end in ends}
        positions = {position for position in positions if position >= found.reused}
        for position in range(found.reused + 1, len(tokens) + 1):
            if "interval" in self.admits and position % self.interval == 0:
                positions.add(position)
            computed = position - found.reused
            if "chunk_end" in self.admits and computed % self.chunk == 0:
                rounded = position // self.grid * self.grid
                if position <= found.input_end and rounded > found.reused:
                    positions.add(rounded)
        return positions - {0}

    def insert(self, tokens: Tokens, found: LookUp, now: float | None = None) -> set[int] | None:
        """Insert a sequence; return the depths that were given a state, None if bypassed."""
        self.clock += 1
        time = self.clock if now is None else now
        if self._size(len(tokens), 1) > self.capacity_bytes:
            self.bypassed += 1
            return None
        self._insertions += 1

        checkpoints = self._positions(tokens, found)
        path, matched = self._walk(tokens)
        if matched < len(tokens):
            parent = self._node_at(tokens, matched, time)
            self._hang(Node(parent, tokens[matched:], time, self._insertions))
            self._revalue(parent)
            self.kv_tokens += len(tokens) - matched
        for depth in checkpoints:
            node = self._node_at(tokens, depth, time)
            self.states += not node.state
            node.state = True
            self._touch(node, time)
        path, _ = self._walk(tokens)
        if self.touches == "path":
            for node in path:
                self._touch(node, time)
        for node in path:
            self._merge_if_idle(node)

        end = next((node for node in self._walk(tokens)[0] if node.depth == len(tokens)), None)
        if end is not None:
            end.time = time
        while self.bytes > self.capacity_bytes:
            self._evict(end)
        if end is not None:
            # As in GDSF, what comes in is valued after its victims have raised the floor.
            self._revalue(end)
        return checkpoints

    def _touch(self, node: Node, time: float) -> None:
        node.time = time
        self._revalue(node)

    def _revalue(self, node: Node) -> None:
        if self._value is None or node.parent is None:
            return
        parent_depth = node.parent.depth
        node.value = self._value(
            Entry(
                depth=node.depth,
                parent_depth=parent_depth,
                edge_kv_bytes=len(node.edge) * self.shape.kv_bytes_per_token,
                state_bytes=node.state * self.shape.state_bytes,
                flops=self.shape.flops(node.depth) - self.shape.flops(parent_depth),
                hits=node.hits,
                floor=self.floor,
            )
        )

    def _hang(self, node: Node) -> None:
        """Put a node, new or with a new edge, below its parent."""
        assert node.parent is not None
        node.parent.children[node.edge[0]] = node
        self._revalue(node)

    def _node_at(self, tokens: Tokens, depth: int, time: float) -> Node:
        """Return the node at a resident depth of a sequence; split the edge there if need be."""
        path, _ = self._walk(tokens[:depth])
        above = path[-1] if path else self.root
        if above.depth == depth:
            return above
        below = above.children[tokens[above.depth]]
        length = depth - above.depth
        middle = Node(above, below.edge[:length], time, self._insertions)
        below.edge = below.edge[length:]
        below.parent = middle
        self._hang(middle)
        self._hang(below)
        return middle

    def _merge_if_idle(self, node: Node) -> None:
        """Merge a node without state into its only child, if it has one child.

        The KV stays, the child keeps its own time.
        """
        if node is self.root or node.state or len(node.children) != 1:
            return
        (child,) = node.children.values()
        child.edge = node.edge + child.edge
        child.parent = node.parent
        self._hang(child)

    def _remove(self, node: Node) -> None:
        self.states -= node.state
        node.state = False
        self._merge_if_idle(node)
        while node is not self.root and not node.state and not node.children:
            assert node.parent is not None
            del node.parent.children[node.edge[0]]
            self.kv_tokens -= len(node.edge)
            node = node.parent
            self._revalue(node)
            self._merge_if_idle(node)

    def _evict(self, end: Node | None) -> None:
        most_children = 0 if self.evicts == "leaves" else 1
        candidates = [
            node for node in self.nodes() if len(node.children) <= most_children and node is not end
        ]
        if not candidates:
            assert end is not None
            self._revalue(end)
            candidates = [end]
        times = [node.time for node in candidates]
        values = [node.value for node in candidates]
        if self._normalised:
            times, values = min_max(times), min_max(values)
        scores = list(map(self.score, times, values))
        self.floor, _, _, position = min(
            (score, node.depth, node.created, i)
            for i, (score, node) in enumerate(zip(scores, candidates, strict=True))
        )
        self._remove(candidates[position])
        self.evictions += 1

    def score(self, recency: float, value: float) -> float:
        if self._score is not None:
            return self._score(recency, value)
        return recency + self.alpha * value

    def causes(self, history: History, tokens: Tokens, found: LookUp) -> dict[str, int]:
        seen = longest_shared(tokens, history.sequences)
        once_resident = longest_shared(tokens, history.admitted)
        once_state = max(
            (d for d in range(found.reused + 1, found.matched + 1) if tokens[:d] in history.states),
            default=found.reused,
        )
        on_grid = max(once_state, found.matched // self.grid * self.grid)
        return {
            "cold": len(tokens) - seen,
            "not_admitted": seen - once_resident,
            "kv_evicted": once_resident - found.matched,
            "grid": found.matched - on_grid,
            "no_checkpoint": on_grid - once_state,
            "state_evicted": once_state - found.reused,
        }

    def check_invariants(self) -> None:
        """Raise AssertionError unless the tree and its accounts agree."""
        nodes = list(self.nodes())
        assert self.kv_tokens == sum(len(node.edge) for node in nodes)
        assert self.states == sum(node.state for node in nodes)
        assert self.bytes <= self.capacity_bytes
        assert not self.root.state
        assert self.root.depth == 0
        for node in nodes:
            assert node.parent is not None
            assert node.edge
            assert node.parent.children[node.edge[0]] is node
            assert node.depth == node.parent.depth + len(node.edge)
            if not node.state:
                leaf_allowed = "sequence_end" not in self.admits or self.grid > 1
                assert len(node.children) >= 2 or (leaf_allowed and not node.children)


class BlockCache:
    """`vllm+`: every full block of a sequence has the KV of its tokens and a state at its end."""

    def __init__(self, capacity_bytes: float, shape: Shape, block: int = 32) -> None:
        self.capacity_bytes = capacity_bytes
        self.shape = shape
        self.block = block
        self.clock = 0
        self.evictions = 0
        self.bypassed = 0
        self.times: dict[Tokens, float] = {}  # prefix that ends with the block -> last touch

    @property
    def states(self) -> int:
        return len(self.times)

    @property
    def kv_tokens(self) -> int:
        return len(self.times) * self.block

    @property
    def bytes(self) -> int:
        return self.kv_tokens * self.shape.kv_bytes_per_token + self.states * self.shape.state_bytes

    def _blocks(self, tokens: Tokens) -> list[Tokens]:
        return [tokens[:end] for end in range(self.block, len(tokens) + 1, self.block)]

    def look_up(self, tokens: Tokens, now: float | None = None) -> LookUp:
        self.clock += 1
        reused = 0
        for block in self._blocks(tokens):
            if block not in self.times:
                break
            self.times[block] = self.clock if now is None else now
            reused = len(block)
        return LookUp(reused, reused)

    def insert(self, tokens: Tokens, found: LookUp, now: float | None = None) -> set[int]:
        self.clock += 1
        blocks = self._blocks(tokens)
        for block in blocks:
            self.times[block] = self.clock if now is None else now
        while self.bytes > self.capacity_bytes:
            victim = min(self.times, key=lambda block: (self.times[block], -len(block)))
            del self.times[victim]
            self.evictions += 1
        return set()

    def causes(self, history: History, tokens: Tokens, found: LookUp) -> dict[str, int]:
        seen = longest_shared(tokens, history.sequences)
        whole = seen // self.block * self.block
        return {
            "cold": len(tokens) - seen,
            "grid": seen - whole,
            "kv_evicted": whole - found.reused,
        }

    def check_invariants(self) -> None:
        assert self.bytes <= self.capacity_bytes
        for block in self.times:
            assert len(block) % self.block == 0
            above = block[: -self.block]
            assert not above or self.times[above] >= self.times[block]


class NoCache:
    """`vanilla`: everything is computed anew."""

    bytes = states = kv_tokens = evictions = bypassed = 0

    def look_up(self, tokens: Tokens, now: float | None = None) -> LookUp:
        return LookUp(0, 0)

    def insert(self, tokens: Tokens, found: LookUp, now: float | None = None) -> None:
        return None

    def causes(self, history: History, tokens: Tokens, found: LookUp) -> dict[str, int]:
        seen = longest_shared(tokens, history.sequences)
        return {"cold": len(tokens) - seen, "not_admitted": seen}

    def check_invariants(self) -> None:
        pass


class CeilingCache:
    """`ceiling`: infinite capacity, and a state at every position."""

    evictions = bypassed = 0

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.kv_tokens = 0
        self._sequences: list[Tokens] = []

    @property
    def states(self) -> int:
        return self.kv_tokens

    @property
    def bytes(self) -> int:
        return self.kv_tokens * (self.shape.kv_bytes_per_token + self.shape.state_bytes)

    def look_up(self, tokens: Tokens, now: float | None = None) -> LookUp:
        seen = longest_shared(tokens, self._sequences)
        return LookUp(seen, seen)

    def insert(self, tokens: Tokens, found: LookUp, now: float | None = None) -> set[int]:
        self.kv_tokens += len(tokens) - longest_shared(tokens, self._sequences)
        self._sequences.append(tokens)
        return set()

    def causes(self, history: History, tokens: Tokens, found: LookUp) -> dict[str, int]:
        return {"cold": len(tokens) - found.reused}

    def check_invariants(self) -> None:
        distinct = {tokens[:end] for tokens in self._sequences for end in range(1, len(tokens) + 1)}
        assert self.kv_tokens == len(distinct)


Cache = RadixCache | BlockCache | NoCache | CeilingCache


class Result(list[dict[str, Any]]):
    """One dict per request.

    Attributes:
        tuned_alpha: what the bootstrap adopted; None before, and for other policies.
        first_eviction_request: the bootstrap's R0, counted from 1.
    """

    tuned_alpha: float | None = None
    first_eviction_request: int | None = None

    @property
    def reused(self) -> list[int]:
        return [row["reused"] for row in self]


def step(
    cache: Cache,
    history: History,
    request: Request,
    *,
    clock: str = "logical",
    check: bool = False,
) -> dict[str, Any]:
    """Serve one request: look up, insert, explain."""
    now = {"logical": None, "seconds": request.arrival}[clock]
    sequence = request.input + request.output
    found = cache.look_up(request.input, now)
    causes = dict.fromkeys(CAUSES, 0) | cache.causes(history, request.input, found)
    history.record(sequence, cache.insert(sequence, found, now))
    if check:
        cache.check_invariants()
        assert 0 <= found.reused <= found.matched <= len(request.input)
        assert min(causes.values()) >= 0
        assert found.reused + sum(causes.values()) == len(request.input)
        assert set(causes) == set(CAUSES)
    return {
        "matched": found.matched,
        "reused": found.reused,
        "causes": causes,
        "bytes": cache.bytes,
        "states": cache.states,
        "kv_tokens": cache.kv_tokens,
        "evictions": cache.evictions,
        "bypassed": cache.bypassed,
    }


def replay(
    cache: Cache, requests: Iterable[Request], *, clock: str = "logical", check: bool = False
) -> Result:
    """Replay a trace: each look-up is followed directly by the insertion.

    In a row, `evictions` and `bypassed` count from the start; sizes are those after the request.
    """
    history = History()
    return Result(step(cache, history, r, clock=clock, check=check) for r in requests)


def _reused_tokens(cache: RadixCache, requests: list[Request]) -> int:
    total = 0
    for request in requests:
        found = cache.look_up(request.input)
        cache.insert(request.input + request.output, found)
        total += found.reused
    return total


def marconi_bootstrap(
    requests: Iterable[Request],
    capacity_bytes: float,
    shape: Shape,
    multiplier: float = 5,
    *,
    check: bool = False,
) -> Result:
    """Replay `marconi` with the alpha that the bootstrap of section 5 adopts."""
    cache = RadixCache(capacity_bytes, shape, "marconi", alpha=0.0)
    history = History()
    result = Result()
    window: list[Request] = []
    snapshot: RadixCache | None = None
    for number, request in enumerate(requests, 1):
        result.append(step(cache, history, request, check=check))
        if result.tuned_alpha is not None:
            continue
        if snapshot is not None:
            window.append(request)
        elif cache.evictions:
            result.first_eviction_request = number
            snapshot = copy.deepcopy(cache)
        if snapshot is not None and number >= multiplier * result.first_eviction_request:
            reused = Counter[float]()
            for alpha in ALPHAS:
                trial = copy.deepcopy(snapshot)
                trial.alpha = alpha
                reused[alpha] = _reused_tokens(trial, window)
            result.tuned_alpha = max(ALPHAS, key=lambda alpha: (reused[alpha], -alpha))
            cache.alpha = result.tuned_alpha
    return result


def run(
    policy: str,
    requests: Iterable[Request],
    capacity_bytes: float,
    shape: Shape,
    *,
    alpha: float = 0.0,
    multiplier: float = 5,
    block: int = 32,
    check: bool = False,
) -> Result:
    """Replay a trace with one of `POLICIES`."""
    if policy == "marconi_bootstrap":
        return marconi_bootstrap(requests, capacity_bytes, shape, multiplier, check=check)
    cache: Cache
    if policy == "vanilla":
        cache = NoCache()
    elif policy == "ceiling":
        cache = CeilingCache(shape)
    elif policy == "vllm+":
        cache = BlockCache(capacity_bytes, shape, block)
    elif policy == "unbounded":
        cache = RadixCache(math.inf, shape, "marconi")
    else:
        cache = RadixCache(capacity_bytes, shape, policy, alpha=alpha)
    return replay(cache, requests, check=check)
