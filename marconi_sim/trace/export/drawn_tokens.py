"""Tokens for a compiled trace, which holds none: drawn at random, equal exactly where the prefix index says so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.errors import UserError
from marconi_sim.core.index.build import ROOT
from marconi_sim.core.index.requests import Index


class Tokens:
    """The tokens of every sequence of a trace.

    An edge's tokens depend on the seed and its node alone. Edges that leave the same node begin with different tokens,
    so that two sequences agree up to the node where their paths part, and no further.
    """

    def __init__(self, index: Index, vocabulary: int, seed: int) -> None:
        """Prepare the first token of every edge.

        Args:
            index: the prefix index.
            vocabulary: tokens are drawn from [0, vocabulary).
            seed: of the random draws.

        Raises:
            UserError: more edges leave a node than there are tokens.
        """
        parent = index.parent[1:]
        by_parent = np.argsort(parent, kind="stable")
        grouped = parent[by_parent]
        starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]])
        sizes = np.diff(np.r_[starts, grouped.size])
        if sizes.size and sizes.max() > vocabulary:
            raise UserError(
                f"vocabulary of {vocabulary:,} tokens: too small for this trace, {sizes.max():,} sequences"
                " continue differently at one place; use a model with a larger vocabulary or fewer requests"
            )
        rank = np.arange(grouped.size) - np.repeat(starts, sizes)
        offsets = np.random.default_rng(seed).integers(vocabulary, size=index.parent.size)
        self._first = np.zeros(index.parent.size, np.int64)
        self._first[1 + by_parent] = (offsets[grouped] + rank) % vocabulary
        self._index = index
        self._vocabulary = vocabulary
        self._seed = seed

    def _edge(self, node: int) -> NDArray[np.int64]:
        length = int(self._index.depth[node] - self._index.depth[self._index.parent[node]])
        tokens = np.random.default_rng((self._seed, node)).integers(self._vocabulary, size=length)
        tokens[0] = self._first[node]
        return tokens

    def between(self, start: int, node: int) -> NDArray[np.int64]:
        """Return the tokens of the positions [start, depth of `node`) of the path to `node`."""
        index = self._index
        edges = []
        end = int(index.depth[node])
        while node != ROOT and index.depth[node] > start:
            edges.append(self._edge(node))
            node = int(index.parent[node])
        if not edges:
            return np.empty(0, np.int64)
        path = np.concatenate(edges[::-1])
        return path[path.size - (end - start) :]
