"""What a format is: its name, what it looks like, which options it takes, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marconi_sim.trace.compiled.build import Request


@dataclass(frozen=True)
class ImportOptions:
    """How to turn a source into requests. None means: as the format's documentation says.

    Attributes:
        tokenizer: `bytes`, `mistral-v1`, or the path of a `tokenizer.json` or a SentencePiece `.model` file.
        keep_observations: keep only the last N observations (tool or environment messages) of the history of an
            agent session; older ones are dropped, the model's answers stay.
        max_tokens: a session ends before the first request whose input would be longer.
        max_turns: a session ends after this many requests.
        min_rounds: sessions with fewer requests are left out.
        first_sessions: only the first N sessions, in order of their names.
        block_size: tokens per block of a trace of block hashes.
        shared_heads: for block traces whose ids are local to a session: give sessions with equal tool and system
            prompt lengths a common head of that many tokens.
    """

    tokenizer: str | None = None
    keep_observations: int | None = None
    max_tokens: int | None = None
    max_turns: int | None = None
    min_rounds: int | None = None
    first_sessions: int | None = None
    block_size: int | None = None
    shared_heads: bool | None = None


@dataclass(frozen=True)
class Format:
    """One readable format.

    Attributes:
        name: as written after `--format`.
        summary: one line for `marconi-sim list formats`.
        options: the names of the `ImportOptions` it honours; giving another one is an error.
        matches: tells from a path (a file or a directory) and the first bytes of its (decompressed) content whether
            the format fits. Must not raise.
        read: (path, options, notes) -> requests in the order of the source, streamed. While it runs it writes into
            `notes` what a reader of the result must know: tokenizer, rules, counts of what was left out or inferred,
            and `block_size` where a symbol is more than a token.
    """

    name: str
    summary: str
    options: frozenset[str]
    matches: Callable[[Path, bytes], bool]
    read: Callable[[Path, ImportOptions, dict[str, Any]], Iterator[Request]]
