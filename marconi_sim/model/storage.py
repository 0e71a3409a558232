"""How an engine stores KV and states: what the same model costs on different engines."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from marconi_sim.base.errors import UserError, did_you_mean

DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}  # -> bytes
CONV_COLUMNS = ("kernel-1", "kernel")
_MOST = 2**10


@dataclass(frozen=True)
class Storage:
    """How KV and states are stored. The defaults are those of vLLM and SGLang for Qwen3.5 and Nemotron.

    Attributes:
        kv_dtype: of keys and values.
        state_dtype: of the recurrent state.
        conv_dtype: of the last inputs of the convolution, which belong to the state.
        conv_columns: how many inputs that is: `kernel-1`, what the next token needs (vLLM, SGLang), or `kernel`, what
            the cache of transformers holds.
        tensor_parallel: GPUs that share the heads; bytes are those of one of them.
        draft_tokens: speculative tokens; vLLM holds an input of the convolution more for each.
    """

    kv_dtype: str = "bfloat16"
    state_dtype: str = "float32"
    conv_dtype: str = "bfloat16"
    conv_columns: str = CONV_COLUMNS[0]
    tensor_parallel: int = 1
    draft_tokens: int = 0

    def columns(self, kernel: int) -> int:
        """Return how many inputs of a convolution are stored."""
        return kernel - (self.conv_columns == "kernel-1") + self.draft_tokens


STORAGE_OPTIONS = tuple(field.name for field in fields(Storage))


def check_storage_option(key: str, value: Any, place: str) -> None:
    """Raise if an option of `Storage` cannot have this value.

    Raises:
        UserError: says what is allowed.
    """
    if key.endswith("_dtype") or key == "conv_columns":
        allowed = CONV_COLUMNS if key == "conv_columns" else tuple(DTYPES)
        if value not in allowed:
            raise UserError(
                f"{place}: {key} = {value!r}: unknown{did_you_mean(str(value), allowed)}"
            )
        return
    low = 1 if key == "tensor_parallel" else 0
    if type(value) is not int or not low <= value <= _MOST:
        raise UserError(
            f"{place}: {key} = {value!r}, expected a whole number from {low} to {_MOST}"
        )


def check_storage(storage: Storage, place: str) -> None:
    """Raise if two options exclude each other.

    Raises:
        UserError: says which.
    """
    if storage.draft_tokens and storage.conv_columns != "kernel-1":
        raise UserError(
            f"{place}: draft_tokens = {storage.draft_tokens} with conv_columns = '{storage.conv_columns}': the columns"
            " of draft tokens are vLLM's, whose conv_columns is kernel-1"
        )
