"""Format `lmsys`: LMSYS-Chat-1M and other data of its schema, read with `datasets`.

    {"conversation_id": "33f0...", "model": "wizardlm-13b", "turn": 1, "language": "English",
     "conversation": [{"content": "...", "role": "user"}, {"content": "...", "role": "assistant"}]}

The source is a local Parquet or JSON Lines file, a directory of Parquet files, or the name of a
data set on the Hugging Face hub such as `lmsys/lmsys-chat-1m`, whose owner has to grant access
first. Rows are streamed. The paper takes conversations of at least 10 rounds: `--min-rounds 10`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from marconi_sim.base.errors import UserError
from marconi_sim.base.files import readable_file
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.convert import MESSAGE_OPTIONS, Session, message, message_requests
from marconi_sim.trace.importing.format import Format, ImportOptions

_KEYS = {"conversation_id", "conversation"}
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_SECONDS = 10.0
_LOADERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}


def is_hub_name(source: Path) -> bool:
    """Tell whether a source is no file but may be a data set on the hub: `OWNER/NAME`."""
    return bool(_HUB_NAME.fullmatch(str(source))) and not source.exists()


def _parquet_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def _local_files(path: Path) -> tuple[str, list[str]]:
    """Return the loader and the files of a local source."""
    if path.is_dir():
        files = _parquet_files(path)
        if not files:
            raise UserError(f"{path}: no .parquet file in this directory")
        return "parquet", [str(file) for file in files]
    readable_file(path, "LMSYS-Chat data, or the name of a data set on the hub")
    loader = _LOADERS.get(Path(path.name.removesuffix(".gz")).suffix)
    if loader is None:
        raise UserError(f"{path}: cannot read '{path.suffix}'; use {', '.join(_LOADERS)}")
    return loader, [str(path)]


def _meet_hub(name: str) -> None:
    """Ask the hub for a data set once, so that what is wrong is known at once.

    `datasets` would try for half a minute and tell of every try. In the offline mode of the hub's client
    (HF_HUB_OFFLINE) nothing is asked: then it fails at once by itself, or has a copy.
    """
    from huggingface_hub import HfApi, constants

    if not constants.HF_HUB_OFFLINE:
        HfApi().dataset_info(name, timeout=_HUB_SECONDS)


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    if is_hub_name(path):
        arguments: dict[str, Any] = {"path": path.as_posix()}
    else:
        loader, files = _local_files(path)
        arguments = {"path": loader, "data_files": files}
    import datasets

    try:
        if is_hub_name(path):
            _meet_hub(path.as_posix())
        yield from datasets.load_dataset(**arguments, split="train", streaming=True)
    except Exception as error:  # datasets, its hub client and its readers raise many kinds
        reason = (
            f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            if str(error)
            else (type(error).__name__)
        )
        hint = (
            "; check the network, the name, and your access (ask for it on the data set's page,"
            " then set HF_TOKEN), or give a local copy"
            if is_hub_name(path)
            else ""
        )
        raise UserError(f"{path}: cannot be read with datasets ({reason}){hint}") from error


def _sessions(path: Path) -> Iterator[Session]:
    for number, row in enumerate(_rows(path)):
        place = f"{path}: row {number}"
        missing = sorted(_KEYS - row.keys())
        if missing:
            raise UserError(
                f"{place}: no {' and no '.join(missing)}; expected the schema of LMSYS-Chat-1M"
            )
        conversation = row["conversation"]
        if not isinstance(conversation, list):
            raise UserError(f"{place}: conversation is {type(conversation).__name__}, not a list")
        yield Session(
            str(row["conversation_id"]),
            [message(m, f"{place}: conversation[{i}]") for i, m in enumerate(conversation)],
        )


def _read(path: Path, options: ImportOptions, notes: dict[str, Any]) -> Iterator[Request]:
    return message_requests(lambda: _sessions(path), options, notes)


def _columns(path: Path) -> set[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = _parquet_files(path)
    try:
        return set(pq.read_schema(files[0]).names) if files else set()
    except (pa.ArrowException, OSError):
        return set()


def _matches(path: Path, head: bytes) -> bool:
    if path.is_dir() or path.suffix == ".parquet":
        return _columns(path) >= _KEYS
    try:
        record = orjson.loads(head.split(b"\n", 1)[0])
    except orjson.JSONDecodeError:
        return head.lstrip().startswith(b"{") and all(f'"{k}"'.encode() in head for k in _KEYS)
    return isinstance(record, dict) and record.keys() >= _KEYS


FORMAT = Format(
    name="lmsys",
    summary="LMSYS-Chat-1M: local Parquet or JSONL, or a data set on the hub (needs access)",
    options=MESSAGE_OPTIONS,
    matches=_matches,
    read=_read,
)
