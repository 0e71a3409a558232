"""Tokenizers for message traces: from text to token ids.

Token ids never leave the import: a compiled trace keeps lengths and sharing only. What it keeps of
the tokenizer is its identity, a name and a hash, so that the same choice can be checked when the
trace is built again.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.base.files import readable_file

ALLOWED = "'bytes', 'mistral-v1', or the path of a tokenizer.json or a SentencePiece .model file"
_BYTES_BOS = 256  # the first id that is not a byte


@dataclass(frozen=True)
class Tokenizer:
    """A loaded tokenizer.

    Attributes:
        identity: name and, for a file, the first 12 hexadecimal digits of its SHA-256; never a
            local path.
        bos: the ids that begin a text: one, or none if the tokenizer has no such token.
        encode_plain: texts -> ids of each, without `bos`.
    """

    identity: str
    bos: tuple[int, ...]
    encode_plain: Callable[[Sequence[str]], Sequence[Sequence[int] | NDArray[np.int32]]]

    def encode_all(self, texts: Sequence[str], bos: bool = True) -> list[NDArray[np.int32]]:
        """Return the token ids of each text, int32; with `bos`, each begins with the BOS token."""
        head = np.array(self.bos if bos else (), np.int32)
        return [
            np.concatenate((head, np.asarray(ids, np.int32))) for ids in self.encode_plain(texts)
        ]

    def encode(self, text: str, bos: bool = True) -> NDArray[np.int32]:
        """Return the token ids of one text, int32."""
        return self.encode_all([text], bos)[0]


def _bytes() -> Tokenizer:
    def encode(texts: Sequence[str]) -> list[NDArray[np.int32]]:
        return [
            np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.int32)
            for text in texts
        ]

    return Tokenizer("bytes", (_BYTES_BOS,), encode)


def _from_json(path: Path, identity: str) -> Tokenizer:
    import tokenizers

    try:
        model = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more precise
        raise UserError(f"{path}: not a tokenizer.json ({str(error).splitlines()[0]})") from error
    model.no_truncation()
    model.no_padding()
    plain = model.encode("a", add_special_tokens=False).ids
    framed = model.encode("a", add_special_tokens=True).ids
    bos = framed[: framed.index(plain[0])] if plain and plain[0] in framed else []

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [e.ids for e in model.encode_batch_fast(list(texts), add_special_tokens=False)]

    return Tokenizer(identity, tuple(bos), encode)


def _from_sentencepiece(path: Path, identity: str) -> Tokenizer:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(path.read_bytes())
    except (RuntimeError, OSError) as error:
        raise UserError(f"{path}: neither a tokenizer.json nor a SentencePiece model") from error
    bos = (model.bos_id(),) if model.bos_id() >= 0 else ()

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return model.encode(list(texts))  # type: ignore[no-any-return]

    return Tokenizer(identity, bos, encode)


def _mistral_v1_file() -> Path:
    """Return the model file inside the installed mistral-common, without importing that package."""
    spec = importlib.util.find_spec("mistral_common")
    if spec is None or spec.origin is None:
        raise UsageError(
            "tokenizer 'mistral-v1': needs mistral-common;"
            " install it with: pip install 'marconi-sim[mistral]'"
        )
    return Path(spec.origin).parent / "data" / "tokenizer.model.v1"


def load_tokenizer(name: str) -> Tokenizer:
    """Load a tokenizer.

    Args:
        name: `bytes` (UTF-8 bytes, BOS 256), `mistral-v1` (the SentencePiece model that
            mistral-common ships; its segmentation is nearly that of Llama-2), or the path of a
            `tokenizer.json` or of a SentencePiece model.

    Raises:
        UsageError: empty, or neither a known name nor a file; or `mistral-v1` without the extra `mistral`.
        UserError: the file is not a tokenizer.
    """
    if name == "bytes":
        return _bytes()
    if name == "":
        raise UsageError(f"tokenizer '': is empty; give {ALLOWED}")
    if name != "mistral-v1" and not Path(name).exists():
        raise UsageError(f"tokenizer '{name}': no such name or file; expected {ALLOWED}")
    path = _mistral_v1_file() if name == "mistral-v1" else Path(name)
    content = readable_file(path, "tokenizer").read_bytes()
    shown = name if name == "mistral-v1" else path.name
    identity = f"{shown} sha256:{hashlib.sha256(content).hexdigest()[:12]}"
    load = _from_json if content.lstrip()[:1] == b"{" else _from_sentencepiece
    return load(path, identity)
