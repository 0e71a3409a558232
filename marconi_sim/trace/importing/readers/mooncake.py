"""Mooncake logs: one request a line, its input as ids of blocks, global to the file.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ... 2354]}

`timestamp` is in milliseconds. There is one id for every block of `input_length` tokens, the last
block may be partly filled. Equal ids mean equal blocks behind equal prefixes. Layout: Mooncake's
FAST'25 traces, 512 tokens a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from marconi_sim.base.errors import UserError
from marconi_sim.core.index.build import NONE
from marconi_sim.trace.compiled.build import Request
from marconi_sim.trace.importing.continuations import continued_by, conversations, sequences
from marconi_sim.trace.importing.fields import (
    LONGEST_SEQUENCE,
    block_ids,
    block_size,
    number,
    whole_number,
)
from marconi_sim.trace.importing.format import Format, ImportOptions
from marconi_sim.trace.importing.lines import read_json_lines

DEFAULT_BLOCK = 512
_KEYS = {"timestamp", "input_length", "output_length", "hash_ids"}


def _fitting_block_size(length: int, ids: int) -> int | None:
    """Return a block size that cuts `length` tokens into `ids` blocks, rather a power of two."""
    if not 1 <= ids <= length:
        return None
    smallest = -(-length // ids)
    if -(-length // smallest) != ids:
        return None
    power = 2 ** (smallest - 1).bit_length()
    return power if -(-length // power) == ids else smallest


def _matches(path: Path, head: bytes) -> bool:
    try:
        record = orjson.loads(head.split(b"\n", 1)[0])
    except orjson.JSONDecodeError:
        return (
            head.lstrip().startswith(b"{") and b'"hash_ids"' in head and b'"input_length"' in head
        )
    return isinstance(record, dict) and record.keys() >= _KEYS


def _read(path: Path, options: ImportOptions, notes: dict[str, Any]) -> Iterator[Request]:
    block = block_size(options, DEFAULT_BLOCK)
    blocks, lengths, outputs, arrivals = [], [], [], []
    for line, record in read_json_lines(path):
        place = f"{path}:{line}"
        length = whole_number(record, "input_length", place, 1)
        output = whole_number(record, "output_length", place, 0)
        ids = block_ids(record, "hash_ids", place)
        if ids.size != -(-length // block):
            fitting = _fitting_block_size(length, ids.size)
            hint = (
                "no block size fits both"
                if fitting is None
                else f"wrong block size? --block-size {fitting} would fit this line"
            )
            raise UserError(
                f"{place}: {ids.size} hash_ids, but input_length {length} makes"
                f" {-(-length // block)} blocks of {block} tokens; {hint}"
            )
        if length + output > LONGEST_SEQUENCE:
            raise UserError(
                f"{place}: input_length + output_length is {length + output}, allowed are"
                f" {LONGEST_SEQUENCE}"
            )
        blocks.append(ids)
        lengths.append(length)
        outputs.append(output)
        arrivals.append(number(record, "timestamp", place) / 1000)
    input_tokens = np.array(lengths, np.int64)
    output_tokens = np.array(outputs, np.int64)
    full = [ids[: length // block] for ids, length in zip(blocks, lengths, strict=True)]
    successor = continued_by(full, input_tokens, output_tokens, np.array(arrivals))
    del full
    first, turn = conversations(successor)
    continued = int((successor != NONE).sum())
    notes["block_size"] = block
    notes["continuations"] = (
        f"continuations inferred: {continued} of {len(blocks)} requests are continued by a later"
        " one; the log shows neither outputs nor conversations"
    )
    notes["sessions"] = (
        "inferred: a session is a chain of inferred continuations, named by its first request"
    )
    notes["outputs"] = (
        "where no continuation is inferred, the output is taken to be unlike any other sequence;"
        f" sharing is seen in whole blocks of {block} tokens"
    )
    symbols = sequences(blocks, input_tokens, output_tokens, successor, block)
    for i in range(len(symbols)):
        yield Request(
            session=str(first[i]),
            turn=int(turn[i]),
            symbols=symbols[i],
            input_tokens=lengths[i],
            output_tokens=outputs[i],
            output_known=bool(successor[i] != NONE),
            arrival=arrivals[i],
        )


FORMAT = Format(
    name="mooncake",
    summary="JSONL of block hashes: timestamp (ms), input_length, output_length, hash_ids",
    options=frozenset({"block_size"}),
    matches=_matches,
    read=_read,
)
