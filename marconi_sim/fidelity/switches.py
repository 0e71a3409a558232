"""The departures in words: what the paper says, what the published code does, and whose results it can change."""

from __future__ import annotations

from typing import NamedTuple

TUNED, FIXED, LEAF_LRU, BLOCKS = "marconi", "marconi alpha=0.5", "sglang+", "vllm+"
# What is replayed -> (policy, parameters). With a fixed alpha nothing goes through what the tuner happens to choose.
CASES: dict[str, tuple[str, dict[str, float]]] = {
    TUNED: ("marconi", {}),
    FIXED: ("marconi", {"alpha": 0.5}),
    LEAF_LRU: ("sglang+", {}),
    BLOCKS: ("vllm+", {}),
}
_MARCONI = (TUNED, FIXED)
_TREES = (*_MARCONI, LEAF_LRU)
_TUNER = (TUNED,)


class Switch(NamedTuple):
    """One switch of `Departures`.

    Attributes:
        name: its field there.
        rows: of the audit of the published code.
        paper: what the paper says, as our default rules read it.
        code: what the published code does.
        cases: keys of `CASES` whose results it can change.
    """

    name: str
    rows: str
    paper: str
    code: str
    cases: tuple[str, ...]


SWITCHES = (
    Switch(
        "branch_in_output", "A2",
        "The branch point is where inserting the input, before prefill, would split an edge.",
        "It is sought when the request is done, in input and output: each split stores a state, also inside an output.",
        _TREES,
    ),
    Switch(
        "prefix_costs_two_states", "A3",
        "A sequence that ends inside an edge adds one state.",
        "Room is made for two states, one is stored.",
        _TREES,
    ),
    Switch(
        "repeat_costs_a_state", "A4",
        "A sequence that is in the cache already adds nothing.",
        "Room is made for one more state.",
        _TREES,
    ),
    Switch(
        "insertion_looks_up", "A7",
        "Only the look-up of an input refreshes an entry.",
        "The insertion looks the whole sequence up first, and that refreshes, too.",
        tuple(CASES),
    ),
    Switch(
        "partial_match_touched", "A8",
        "A touch refreshes the nodes that matched.",
        "It also refreshes the node below the edge in which the match ends.",
        (LEAF_LRU,),
    ),
    Switch(
        "end_competes", "A11",
        "The sequence that has just been inserted is not its own victim.",
        "Nothing is protected: the prefix in use may go.",
        _TREES,
    ),
    Switch(
        "mlp_minus_attention", "B1",
        "The MLP saves mlp(node) - mlp(parent).",
        "mlp(node) - attention(parent): negative for long prefixes.",
        _MARCONI,
    ),
    Switch(
        "whole_prefix_bytes", "B2",
        "FLOPs beyond the parent, over the bytes of the entry itself.",
        "FLOPs beyond the parent, over the bytes of the whole prefix.",
        _MARCONI,
    ),
    Switch(
        "last_scanned_freed", "C1",
        "Evicting a leaf frees the leaf's bytes.",
        "It is believed to free the bytes of the candidate that was scored last.",
        _MARCONI,
    ),
    Switch(
        "inverse_age", "C2",
        "Recency is the time of the last touch, normalised.",
        "It is 1 / age, normalised: all but the newest entries are near 0.",
        _MARCONI,
    ),
    Switch(
        "tree_order_ties", "C4, C15",
        "Unspecified; ours: the shallower node first, then the older one.",
        "The first in a walk of the tree; for sglang+, as Python's heap has it.",
        _TREES,
    ),
    Switch(
        "merge_keeps_later", "C5",
        "Unspecified; ours: a child keeps its own time when its parent is merged into it.",
        "The child gets the later of both times.",
        _MARCONI,
    ),
    Switch(
        "oversized_inserted", "C8",
        "Unspecified; ours: a sequence larger than the cache is not inserted.",
        "It is inserted, after everything else has been evicted.",
        _TREES,
    ),
    Switch(
        "room_made_first", "C9",
        "The cache never holds more than its capacity.",
        "Victims go before the insertion; if a part of the sequence's own prefix goes, nobody counts again.",
        tuple(CASES),
    ),
    Switch(
        "extra_ticks", "C14",
        "Unspecified; ours: the clock ticks at each look-up and at each insertion.",
        "It also ticks at the insertion's own look-up and when evictions begin.",
        _TREES,
    ),
    Switch(
        "tuner_counts_flops", "D1",
        "The alpha with the highest token hit rate is adopted.",
        "The alpha that saves the most FLOPs.",
        _TUNER,
    ),
    Switch(
        "tuner_last_500", "D3",
        "All requests of the bootstrap window count.",
        "Only its last 500 do.",
        _TUNER,
    ),
    Switch(
        "tuner_from_empty", "D4",
        "The window is replayed from the cache as it was at the first eviction.",
        "It is replayed from the first request, in an empty cache.",
        _TUNER,
    ),
    Switch(
        "tuner_mid_request", "D5, D7",
        "Unspecified; ours: alpha changes between two requests.",
        "It changes before the insertion of the window's last request.",
        _TUNER,
    ),
    Switch(
        "partial_blocks", "F1, F2, F4",
        "Only full blocks are cached.",
        "The last block may be partial; later tokens are poured into it.",
        (BLOCKS,),
    ),
    Switch(
        "root_counts_as_block", "F3",
        "The room a sequence needs is that of the blocks it adds.",
        "The root counts as a block that is there already, and states come in fractions.",
        (BLOCKS,),
    ),
)  # fmt: skip


def switches_of(case: str) -> tuple[Switch, ...]:
    """Return the switches that can change a case's results."""
    return tuple(switch for switch in SWITCHES if case in switch.cases)
