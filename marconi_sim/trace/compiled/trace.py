"""A compiled trace: where sequences agree, how long they are and when they arrive, but no tokens.

On disk it is one Parquet file. Its rows are of two kinds, told apart by the column `kind` and kept in separate row
groups: `request` rows in the order of the source, `node` rows of the prefix index in order of node number.
The file's metadata (key `marconi_sim`) says the format's version, the counts, a hash of the content and the provenance.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file, whole_file
from marconi_sim.core.index.build import NONE, first_bad_request

FORMAT = "marconi-sim compiled trace"
FORMAT_VERSION = 1
_KEY = b"marconi_sim"
_NODE_COLUMNS = {"parent": np.int32, "depth": np.int32}
_REQUEST_COLUMNS = {
    "turn": np.int32,
    "input_node": np.int32,
    "end_node": np.int32,
    "input_tokens": np.int32,
    "output_tokens": np.int32,
    "arrival": np.float64,
    "think_time": np.float64,
    "words": np.int32,
}
_SCHEMA = pa.schema(
    [("kind", pa.dictionary(pa.int8(), pa.string())), ("session", pa.string())]
    + [(name, pa.from_numpy_dtype(dtype)) for name, dtype in _REQUEST_COLUMNS.items()]
    + [(name, pa.from_numpy_dtype(dtype)) for name, dtype in _NODE_COLUMNS.items()]
)


@dataclass(frozen=True)
class Trace:
    """The prefix index of a trace and its requests.

    A node is an end of an input, an end of an output, or a place where two sequences diverge. Node 0 is the root;
    parents come before their children. Requests are in the order of their source.

    Attributes:
        parent: int32 (nodes,). Parent node, -1 for the root.
        depth: int32 (nodes,). Tokens from the root to the node.
        session: int32 (requests,). Index into `session_names`.
        session_names: sessions in their order: by number if all names are numbers, else by name.
        turn: int32 (requests,). Position of the request in its session.
        input_node: int32 (requests,). Node at the end of the input.
        end_node: int32 (requests,). Node at the end of input + output.
        arrival: float64 (requests,), seconds. Arrival as the source tells it; NaN where it does not.
        think_time: float64 (requests,), seconds. From the previous answer of the session to this request; NaN unknown.
        words: int32 (requests,). Words of the message the user typed for this request; -1 unknown.
        provenance: what the trace was made of: source, licence, tokenizer, converter, synthetic, notes ...
    """

    parent: NDArray[np.int32]
    depth: NDArray[np.int32]
    session: NDArray[np.int32]
    session_names: tuple[str, ...]
    turn: NDArray[np.int32]
    input_node: NDArray[np.int32]
    end_node: NDArray[np.int32]
    arrival: NDArray[np.float64]
    think_time: NDArray[np.float64]
    words: NDArray[np.int32]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Number of requests."""
        return self.session.size

    @property
    def input_tokens(self) -> NDArray[np.int32]:
        """Tokens of each input, int32 (requests,)."""
        return self.depth[self.input_node]

    @property
    def output_tokens(self) -> NDArray[np.int32]:
        """Tokens of each output, int32 (requests,)."""
        return self.depth[self.end_node] - self.depth[self.input_node]

    @functools.cached_property
    def session_labels(self) -> NDArray[Any]:
        """The sessions' names for results: int64 if all of them are numbers."""
        names = self.session_names
        if all(name.isascii() and name.isdigit() and len(name) < 19 for name in names):
            return np.array([int(name) for name in names], np.int64)
        return np.array(names, object)

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of everything a simulation can depend on; provenance is not part of it."""
        digest = hashlib.sha256()
        for array in (
            self.parent, self.depth, self.session, self.turn, self.input_node, self.end_node,
            self.arrival, self.think_time, self.words,
        ):  # fmt: skip
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update("\0".join(self.session_names).encode())
        return digest.hexdigest()


def session_order(names: list[str]) -> list[int]:
    """Return the permutation that sorts sessions: by number if all names are whole numbers, else by name."""
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(range(len(names)), key=lambda i: (int(names[i]), names[i]))
    return sorted(range(len(names)), key=lambda i: names[i])


def save(trace: Trace, path: Path) -> None:
    """Write a compiled trace; the file appears whole or not at all.

    Raises:
        UserError: the file cannot be written.
    """
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "requests": trace.requests,
        "nodes": int(trace.parent.size),
        "sha256": trace.sha256,
        "provenance": dict(trace.provenance),
    }
    schema = _SCHEMA.with_metadata({_KEY: orjson.dumps(header)})
    names = pa.array(trace.session_names, pa.string())
    request_columns = {"session": names.take(pa.array(trace.session))}
    request_columns |= {name: pa.array(getattr(trace, name)) for name in _REQUEST_COLUMNS}
    node_columns = {name: pa.array(getattr(trace, name)) for name in _NODE_COLUMNS}
    with (
        whole_file(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd", compression_level=9) as writer,
    ):
        for kind, columns in (("request", request_columns), ("node", node_columns)):
            rows = len(next(iter(columns.values())))
            columns["kind"] = pa.array([kind], pa.string()).take(pa.array(np.zeros(rows, np.int32)))
            arrays = [
                columns[f.name].cast(f.type) if f.name in columns else pa.nulls(rows, f.type)
                for f in schema
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=2**20)


def is_compiled(path: Path) -> bool:
    """Tell whether a file is a compiled trace, readable or not: by its first bytes and its name."""
    if path.suffix == ".parquet":
        return True
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _read_header(path: Path) -> tuple[pq.FileMetaData, dict[str, Any]]:
    try:
        file = pq.ParquetFile(path)
        text = (file.schema_arrow.metadata or {}).get(_KEY)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(
            f"{path}: corrupted or not a Parquet file ({str(error).splitlines()[0]}); build or import the trace again"
        ) from error
    header = None
    if text is not None:
        try:
            header = orjson.loads(text)
        except orjson.JSONDecodeError:
            header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise UserError(
            f"{path}: a Parquet file, but not a compiled trace; make one with 'marconi-sim trace import'"
        )
    version = header.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise UserError(
            f"{path}: compiled trace of format version {version}, this marconi-sim reads up to {FORMAT_VERSION};"
            " install a newer marconi-sim or build the trace again"
        )
    return file.metadata, header


def _corrupted(path: Path, what: str) -> UserError:
    return UserError(f"{path}: corrupted compiled trace ({what}); build or import the trace again")


def _array(column: pa.Array) -> NDArray[Any]:
    """Return a column of numbers as an array.

    Without `to_numpy`, which imports pandas: that takes longer than most runs.
    """
    if column.null_count:
        raise ValueError(f"{column.null_count} numbers are missing in a column")
    return np.from_dlpack(column)


def check(trace: Trace, path: Path) -> None:
    """Check everything that a simulation relies on.

    Raises:
        UserError: names the first request or node that breaks an invariant.
    """
    nodes = trace.parent.size
    if nodes == 0 or trace.parent[0] != NONE or trace.depth[0] != 0:
        raise _corrupted(path, "the first node is not a root at depth 0")
    parents = trace.parent[1:]
    late = (parents < 0) | (parents >= np.arange(1, nodes))
    if late.any():
        node = int(late.argmax()) + 1
        raise _corrupted(path, f"node {node} has parent {trace.parent[node]}, not an earlier node")
    shallow = trace.depth[1:] <= trace.depth[parents]
    if shallow.any():
        node = int(shallow.argmax()) + 1
        raise _corrupted(path, f"node {node} at depth {trace.depth[node]} is not below its parent")
    for name in ("input_node", "end_node"):
        outside = (getattr(trace, name) < 0) | (getattr(trace, name) >= nodes)
        if outside.any():
            row = int(outside.argmax())
            raise _corrupted(
                path, f"request {row}: {name} {getattr(trace, name)[row]} of {nodes} nodes"
            )
    if (trace.input_node == 0).any():
        raise _corrupted(
            path, f"request {int((trace.input_node == 0).argmax())} has an empty input"
        )
    row = first_bad_request(trace.parent, trace.depth, trace.input_node, trace.end_node)
    if row != NONE:
        raise _corrupted(path, f"request {row}: its end is not below its input")
    for name in ("arrival", "think_time"):
        infinite = np.isinf(getattr(trace, name))
        if infinite.any():
            raise _corrupted(path, f"request {int(infinite.argmax())}: {name} is infinite")


def load(path: Path) -> Trace:
    """Read and check a compiled trace.

    Raises:
        UserError: not a compiled trace, made by a newer version, or corrupted; the message says which.
    """
    metadata, header = _read_header(readable_file(path, "compiled trace"))
    try:
        file = pq.ParquetFile(path, metadata=metadata, read_dictionary=["session"])
        # A row group holds one kind of row: requests first, then nodes.
        groups: dict[str, list[int]] = {"request": [], "node": []}
        rows = 0
        for group in range(metadata.num_row_groups):
            groups["request" if rows < header["requests"] else "node"].append(group)
            rows += metadata.row_group(group).num_rows
        requests = file.read_row_groups(groups["request"], ["session", *_REQUEST_COLUMNS])
        node_table = file.read_row_groups(groups["node"], list(_NODE_COLUMNS))
        columns = {
            name: np.ascontiguousarray(_array(table[name].combine_chunks()), dtype=dtype)
            for table, types in ((requests, _REQUEST_COLUMNS), (node_table, _NODE_COLUMNS))
            for name, dtype in types.items()
        }
        encoded = requests["session"].unify_dictionaries().combine_chunks()
        names = encoded.dictionary.to_pylist()
        codes = _array(encoded.indices)
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        raise _corrupted(
            path, str(error).splitlines()[0] if str(error) else type(error).__name__
        ) from error
    if requests.num_rows != header["requests"] or node_table.num_rows != header["nodes"]:
        raise _corrupted(path, "its row counts are not those it states")
    order = session_order(names)
    rank = np.empty(len(names), np.int32)
    rank[order] = np.arange(len(names), dtype=np.int32)
    stated = {name: columns.pop(name) for name in ("input_tokens", "output_tokens")}
    trace = Trace(
        session=rank[codes],
        session_names=tuple(names[i] for i in order),
        provenance=header.get("provenance", {}),
        **columns,
    )
    for array in columns.values():
        array.flags.writeable = False
    check(trace, path)
    for name, array in stated.items():
        different = array != getattr(trace, name)
        if different.any():
            raise _corrupted(
                path, f"request {int(different.argmax())}: {name} is not the depth of its node"
            )
    if trace.sha256 != header.get("sha256"):
        raise _corrupted(path, "its content does not match its hash")
    return trace
