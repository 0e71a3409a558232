"""From a compiled trace to files that other tools read: requests, block hashes or token ids.

A compiled trace holds lengths and sharing, so block hashes and token ids are invented here: they
agree exactly where the prefix index says that sequences agree (block hashes: up to whole blocks).
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from marconi_sim.base.errors import UsageError
from marconi_sim.base.files import check_writable, whole_file
from marconi_sim.base.progress import progress
from marconi_sim.core.index.build import ROOT
from marconi_sim.trace.compiled.trace import Trace
from marconi_sim.trace.description.describe import infinite_reuse
from marconi_sim.trace.load import Workload

VOCABULARY = 32_000  # invented token ids are below it unless a node has more children
TABLE_ENDINGS = (".csv", ".parquet")
_WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")  # fits into 64 bits


def _write_json_lines(path: Path, records: Iterable[dict[str, Any]], count: int) -> None:
    with whole_file(path) as temporary, temporary.open("wb") as raw:
        packed = path.suffix == ".gz"
        # No name and no time in the header: the same trace gives the same bytes.
        file = gzip.GzipFile("", "wb", 6, raw, mtime=0) if packed else raw
        with progress(path.name, count, "requests") as advance:
            for record in records:
                file.write(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
                advance(1)
        if packed:
            file.close()


def _in_source_order(workload: Workload) -> Iterator[tuple[int, float]]:
    """Yield (row of the trace, arrival) of the requests that take part, in source order."""
    for position in np.argsort(workload.order, kind="stable").tolist():
        yield int(workload.order[position]), float(workload.arrival[position])


def _path(trace: Trace, node: int) -> list[int]:
    """Return the nodes from below the root down to `node`."""
    nodes = []
    while node != ROOT:
        nodes.append(node)
        node = int(trace.parent[node])
    return nodes[::-1]


def export_requests(workload: Workload, path: Path) -> None:
    """Write the request table, in processing order, as CSV or Parquet by the ending of `path`.

    Columns: request (row of the trace), session, turn, arrival and think_time (seconds), words (-1
    unknown), input_tokens, output_tokens, seen_tokens (of the input, shown by an earlier sequence).

    Raises:
        UsageError: another ending.
        UserError: the file cannot be written.
    """
    if path.suffix not in TABLE_ENDINGS:
        raise UsageError(
            f"{path}: cannot write a table as '{path.suffix}'; use one of:"
            f" {', '.join(TABLE_ENDINGS)}"
        )
    check_writable(path)
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    trace, rows = workload.trace, workload.order
    names = pa.array(trace.session_names, pa.string())
    table = pa.table(
        {
            "request": rows,
            "session": names.take(pa.array(trace.session[rows])),
            "turn": trace.turn[rows],
            "arrival": workload.arrival,
            "think_time": workload.think_time,
            "words": trace.words[rows],
            "input_tokens": trace.input_tokens[rows],
            "output_tokens": trace.output_tokens[rows],
            "seen_tokens": infinite_reuse(workload)[0],
        }
    )
    with whole_file(path) as temporary:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(table, temporary)
        else:
            pyarrow.parquet.write_table(table, temporary, compression="zstd")


def _hash_ids(workload: Workload, block: int) -> Iterator[dict[str, Any]]:
    trace = workload.trace
    top = trace.depth[trace.parent].astype(np.int64) // block
    top[ROOT] = 0
    # A node owns the blocks that end on its edge, and one for an input that ends at it inside a
    # block.
    owned = trace.depth.astype(np.int64) // block - top
    first = np.cumsum(owned + 1) - (owned + 1)
    for row, arrival in _in_source_order(workload):
        node = int(trace.input_node[row])
        length = int(trace.depth[node])
        parts = [np.arange(first[n], first[n] + owned[n]) for n in _path(trace, node)]
        if length % block:
            parts.append(first[node : node + 1] + owned[node])
        yield {
            "timestamp": round(arrival * 1000),
            "input_length": length,
            "output_length": int(trace.output_tokens[row]),
            "hash_ids": np.concatenate(parts),
        }


def export_mooncake(workload: Workload, path: Path, block: int) -> None:
    """Write JSONL of block hashes, in the order of the source; `.gz` compresses.

    Two inputs share the id of a block if they agree up to its end. Sharing inside a block, the
    content of outputs and sessions are lost; times are rounded to milliseconds.

    Args:
        workload: what to write.
        path: the file.
        block: tokens per block, at least 1.

    Raises:
        UsageError: `block` is less than 1.
        UserError: the file cannot be written.
    """
    if block < 1:
        raise UsageError(f"block size {block}: must be at least 1 token")
    _write_json_lines(path, _hash_ids(workload, block), workload.requests)


def _edge_tokens(trace: Trace, seed: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the tokens of all edges, one after the other, and where each node's edge begins.

    Tokens are drawn uniformly; then the first tokens of siblings are made to differ.
    """
    generator = np.random.default_rng(seed)
    nodes = trace.parent.size
    length = np.zeros(nodes, np.int64)
    length[1:] = trace.depth[1:] - trace.depth[trace.parent[1:]]
    start = np.cumsum(length) - length
    children = np.bincount(trace.parent[1:], minlength=nodes)
    vocabulary = max(VOCABULARY, int(children.max()))
    tokens = generator.integers(0, vocabulary, int(length.sum()), dtype=np.int32)
    base = generator.integers(0, vocabulary, nodes)
    by_parent = np.argsort(trace.parent[1:], kind="stable") + 1
    rank = np.arange(nodes - 1) - np.repeat(np.cumsum(children) - children, children)
    tokens[start[by_parent]] = (base[trace.parent[by_parent]] + rank) % vocabulary
    return tokens, start


def _with_tokens(workload: Workload, seed: int) -> Iterator[dict[str, Any]]:
    trace = workload.trace
    tokens, start = _edge_tokens(trace, seed)
    for row, arrival in _in_source_order(workload):
        name = trace.session_names[trace.session[row]]
        end = int(trace.end_node[row])
        edges = [
            tokens[start[n] : start[n] + int(trace.depth[n] - trace.depth[trace.parent[n]])]
            for n in _path(trace, end)
        ]
        sequence = np.concatenate(edges)
        length = int(trace.depth[trace.input_node[row]])
        yield {
            "session_id": int(name) if _WHOLE_NUMBER.fullmatch(name) else name,
            "turn_id": int(trace.turn[row]),
            "ts": arrival,
            "num_input_tokens": length,
            "num_output_tokens": sequence.size - length,
            "input_tokens": sequence[:length],
            "output_tokens": sequence[length:],
        }


def export_artifact(workload: Workload, path: Path, seed: int) -> None:
    """Write the JSONL of the published Marconi code, in the order of the source; `.gz` compresses.

    The token ids are invented, drawn with `seed`. Importing the file gives the same prefix index.
    Think times and words are lost.

    Raises:
        UsageError: `seed` is negative.
        UserError: the file cannot be written.
    """
    if seed < 0:
        raise UsageError(f"seed {seed}: must be a whole number of at least 0")
    _write_json_lines(path, _with_tokens(workload, seed), workload.requests)
