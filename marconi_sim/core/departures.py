"""Where the authors' published code departs from the paper, one switch for each departure that changes results.

The default kernels know nothing of this: they follow the paper as DESIGN section 5 reads it. `artifact_radix.py` and
`artifact_blocks.py` are a second, plain implementation in which each of these switches has its place.
"""

from __future__ import annotations

from typing import NamedTuple


class Departures(NamedTuple):
    """A switch that is on does as the published code does; off, as the paper does. Codes are rows of the audit.

    Admission (radix tree):
        branch_in_output: A2. The branch point is sought at the insertion, in input and output.
        prefix_costs_two_states: A3. Room for two states is made for a sequence that ends inside an edge, one is stored.
        repeat_costs_a_state: A4. Room for a state is made for a sequence whose end holds one already.
    Touches:
        insertion_looks_up: A7. The insertion looks the whole sequence up first, which touches what it finds.
        partial_match_touched: A8. `sglang+`: a touch refreshes the node below the edge in which the match ends, too.
    Size and FLOPs:
        mlp_minus_attention: B1. The MLP's saving is mlp(node) - attention(parent).
        whole_prefix_bytes: B2. The bytes in FLOPs per byte are those of the whole prefix, not of the node's edge.
    Eviction:
        end_competes: A11. The node at the sequence's end is a candidate like any other.
        last_scanned_freed: C1. A leaf is believed to free the KV of the candidate that was scored last.
        inverse_age: C2. Recency is 1 / (now - last touch) before it is normalised.
        tree_order_ties: C4, C15. Ties go to the first in a walk of the tree, or as a binary heap has it (`sglang+`).
        merge_keeps_later: C5. A node merged into its child gives it the later of both times.
        oversized_inserted: C8. A sequence larger than the cache is inserted like any other.
        room_made_first: C9. Victims go before the insertion, for as many bytes as it seems to need then.
        extra_ticks: C14. The clock ticks at the insertion's own look-up and when evictions begin, too.
    Tuner:
        tuner_counts_flops: D1. The alpha with the most FLOPs saved is adopted, not the one with the most tokens reused.
        tuner_last_500: D3. Only the last 500 requests of the window count.
        tuner_from_empty: D4. The window is replayed from the first request, in an empty cache.
        tuner_mid_request: D5, D7. The alpha is adopted before the insertion of the window's last request.
    Blocks (`vllm+`):
        partial_blocks: F1, F2, F4. The last block of a sequence may be partial; later tokens are poured into it.
        root_counts_as_block: F3. The room made for a sequence leaves out one block too many, in fractions of blocks.
    """

    branch_in_output: bool = False
    prefix_costs_two_states: bool = False
    repeat_costs_a_state: bool = False
    insertion_looks_up: bool = False
    partial_match_touched: bool = False
    mlp_minus_attention: bool = False
    whole_prefix_bytes: bool = False
    end_competes: bool = False
    last_scanned_freed: bool = False
    inverse_age: bool = False
    tree_order_ties: bool = False
    merge_keeps_later: bool = False
    oversized_inserted: bool = False
    room_made_first: bool = False
    extra_ticks: bool = False
    tuner_counts_flops: bool = False
    tuner_last_500: bool = False
    tuner_from_empty: bool = False
    tuner_mid_request: bool = False
    partial_blocks: bool = False
    root_counts_as_block: bool = False


PAPER = Departures()
ARTIFACT = Departures(*[True] * len(Departures._fields))
