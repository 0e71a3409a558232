"""The accounting `exact`: the shipped shapes, what users of engines quote, options, and files that are no model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import REPOSITORY

import marconi_sim as ms
from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.core.shape import prefill_flops
from marconi_sim.model import ExactModel, load_model, models, vary
from marconi_sim.model.vllm import block_tokens, groups


class Row(NamedTuple):
    """A row of the collected shapes, computed by others: one GPU, KV and convolution bfloat16, state float32."""

    attention: int
    ssm: int
    kv: int  # bytes per token
    mib_per_layer: float
    mib: float
    tokens: int | None  # of KV that one state costs
    block: int
    groups: tuple[int, int]


ROWS = {
    "jamba-1.5-mini": Row(4, 28, 16384, 0.547, 15.31, 980, 144, (1, 7)),
    "jamba-1.5-large": Row(9, 63, 36864, 1.094, 68.91, 1960, 288, (1, 7)),
    "zamba2-7b": Row(13, 81, 372736, 1.792, 145.19, 408, 80, (1, 7)),
    "mamba2-hybrid-8b": Row(4, 24, 16384, 4.059, 97.41, 6234, 1040, (1, 6)),
    "nemotron-h-8b": Row(4, 24, 16384, 4.059, 97.41, 6234, 1040, (1, 6)),
    "nemotron-h-47b": Row(5, 45, 20480, 16.117, 725.27, 37134, 4128, (1, 9)),
    "nemotron-h-56b": Row(10, 54, 40960, 16.117, 870.33, 22280, 4128, (1, 6)),
    "nemotron-nano-9b-v2": Row(4, 27, 16384, 5.070, 136.90, 8762, 1312, (1, 7)),
    "nemotron-nano-12b-v2": Row(6, 28, 24576, 5.070, 141.97, 6057, 1312, (1, 5)),
    "nemotron-3-nano-30b-a3b": Row(6, 23, 6144, 2.035, 46.81, 7989, 2096, (1, 4)),
    "nemotron-3-super-120b-a12b": Row(8, 40, 8192, 4.059, 162.34, 20780, 4160, (1, 5)),
    "nemotron-3-ultra-550b-a55b": Row(12, 48, 12288, 8.105, 389.06, 33200, 8304, (1, 4)),
    "bamba-9b": Row(3, 29, 12288, 4.048, 117.40, 10018, 1040, (1, 10)),
    "falcon-h1-7b": Row(44, 44, 45056, 3.021, 132.90, 3093, 3104, (1, 1)),
    "granite-4.0-h-small": Row(4, 36, 16384, 4.048, 145.74, 9327, 1040, (1, 9)),
    "qwen3-next-80b-a3b": Row(12, 36, 24576, 2.047, 73.69, 3144, 1056, (1, 3)),
    "qwen3.5-4b": Row(8, 24, 32768, 2.047, 49.12, 1572, 528, (1, 3)),
    "qwen3.5-9b": Row(8, 24, 32768, 2.047, 49.12, 1572, 528, (1, 3)),
    "qwen3.5-27b": Row(16, 48, 65536, 3.059, 146.81, 2349, 784, (1, 3)),
    "qwen3.5-35b-a3b": Row(10, 30, 20480, 2.047, 61.41, 3144, 1056, (1, 3)),
    "qwen3.5-397b-a17b": Row(15, 45, 30720, 4.070, 183.16, 6252, 2096, (1, 3)),
    "kimi-linear-48b-a3b": Row(7, 20, 8064, 2.070, 41.41, 5384, 1888, (1, 3)),
    "kimi-k3": Row(24, 69, 27648, 6.211, 428.55, 16253, 5664, (1, 3)),
    "minimax-text-01": Row(10, 70, 40960, 4.000, 280.00, 7168, 1024, (1, 7)),
    "olmo-hybrid-7b": Row(8, 24, 122880, 2.175, 52.21, 446, 160, (1, 3)),
    "lfm2-1.2b": Row(6, 10, 12288, 0.008, 0.08, 7, 16, (1, 2)),
    "llama-3.1-8b": Row(32, 0, 131072, 0, 0, 0, 16, (1, 0)),
    "mistral-7b-v0.3": Row(32, 0, 131072, 0, 0, 0, 16, (1, 0)),
}
EXACT = [name for name in models() if load_model(name).accounting == "exact"]
MIB = 2**20


def exact(name: str, **options: Any) -> ExactModel:
    loaded = vary(load_model(name), options)
    assert isinstance(loaded, ExactModel)
    return loaded


def flops(shape: object, tokens: float) -> float:
    return getattr(prefill_flops, "py_func", prefill_flops)(shape, tokens)


def test_every_shipped_model_is_known_here_but_those_without_collected_numbers():
    assert set(EXACT) - set(ROWS) == {"lfm2-8b-a1b", "ling-3.0-flash"}


@pytest.mark.parametrize("name", ROWS)
def test_shipped_models_cost_what_was_collected(name: str):
    model, row = exact(name), ROWS[name]
    layers = model.layers()
    assert (layers["attention"], layers["ssm"]) == (row.attention, row.ssm)
    assert model.kv_bytes == model.shape.kv_bytes == row.kv
    assert model.state_bytes == model.shape.state_bytes
    assert round(model.state_bytes_of_layer / MIB, 3) == row.mib_per_layer
    assert round(model.state_bytes / MIB, 2) == row.mib
    assert round(model.tokens_per_state) == row.tokens
    assert block_tokens(model) == row.block
    assert groups(model) == row.groups


@pytest.mark.parametrize(
    ("name", "options", "block"),
    [
        ("qwen3.5-4b", {}, 528),  # vllm#40696
        ("qwen3.5-27b", {"tensor_parallel": 2, "draft_tokens": 5}, 816),  # vllm#55766
        ("qwen3.5-27b", {"kv_dtype": "fp8", "draft_tokens": 3}, 1600),  # vllm#53595
        ("qwen3.5-397b-a17b", {}, 2096),  # dynamo#9376
        ("qwen3.5-35b-a3b", {"kv_dtype": "fp8"}, 2096),  # or this one
        ("nemotron-3-super-120b-a12b", {"kv_dtype": "fp8"}, 8320),  # vllm#48401
    ],
)
def test_blocks_that_users_of_vllm_quote(name: str, options: dict[str, Any], block: int):
    assert block_tokens(exact(name, **options)) == block


def test_other_numbers_that_users_quote():
    small = exact("qwen3.5-4b")
    assert round(small.state_bytes / 1e6, 1) == 51.5  # sglang PR 39851: 51 MB
    assert sum(groups(small)) == 4  # llm-d-kv-cache#465


@pytest.mark.parametrize("name", EXACT)
def test_flops_are_monotone_and_rounded_once_up_to_a_million_tokens(name: str):
    model = exact(name)
    shape = model.shape
    assert shape.flops_linear == int(shape.flops_linear)
    assert shape.flops_quadratic == int(shape.flops_quadratic)
    lengths = [*range(0, 1000), *range(1000, 10**6, 997), 10**6]
    found = [flops(shape, float(length)) for length in lengths]
    a, b = int(shape.flops_linear), int(shape.flops_quadratic)
    assert found == pytest.approx([n * (a + b * n) for n in lengths], rel=3e-16)
    assert (np.diff(found) > 0).all()
    assert sum(model.flops_by_layer(5000).values()) == pytest.approx(flops(shape, 5000.0))


# Half the FLOPs per token of all but causal attention and scans are the weights that a token passes: the number in the
# model's name, in billions, less its embeddings and, where a shared layer is used again, more.
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("jamba-1.5-mini", 11, 12), ("jamba-1.5-large", 92, 94), ("nemotron-h-8b", 7, 8), ("nemotron-h-47b", 44, 47),
        ("nemotron-h-56b", 54, 56), ("nemotron-nano-9b-v2", 7.7, 9), ("nemotron-nano-12b-v2", 10.5, 12),
        ("nemotron-3-nano-30b-a3b", 2.7, 3.5), ("nemotron-3-super-120b-a12b", 11, 12.5),
        ("nemotron-3-ultra-550b-a55b", 53, 56), ("bamba-9b", 8.5, 9.5), ("falcon-h1-7b", 6.5, 7.5),
        ("granite-4.0-h-small", 8, 9), ("qwen3-next-80b-a3b", 2.9, 3.5), ("qwen3.5-4b", 3.4, 4),
        ("qwen3.5-27b", 24, 27), ("qwen3.5-35b-a3b", 2.2, 3), ("qwen3.5-397b-a17b", 15, 17),
        ("kimi-linear-48b-a3b", 2.5, 3.2), ("minimax-text-01", 44, 46.5), ("olmo-hybrid-7b", 6.5, 7.2),
        ("lfm2-1.2b", 1, 1.2), ("lfm2-8b-a1b", 1.3, 1.6), ("llama-3.1-8b", 6.9, 8), ("mistral-7b-v0.3", 6.9, 7.3),
    ],
)  # fmt: skip
def test_a_token_passes_as_many_weights_as_the_name_says(name: str, low: float, high: float):
    assert low <= exact(name).shape.flops_linear / 2e9 <= high


def test_flops_by_hand(tmp_path: Path):
    # L = 3: 2*4*(2*2*8 + 2*2*1*2)... see each line
    model = load_model(write(tmp_path))
    attention = 2 * 4 * (3 * 2 + 2 * 1 * 2) + 2 * 3 * 2 * 4  # Q of 3 heads, K and V of 1, output
    scan = 5 * 4 * 2 * 8
    mamba = 2 * 4 * (2 * 8 + 2 * 1 * 8 + 4) + 2 * 4 * (8 + 16) + scan + 2 * 8 * 4
    expert = 2 * (4 * 5 + 2 * 3 * 4 * 7 + 3 * 4 * 6)
    assert model.flops_by_layer(3) == {
        "attention": 2 * (3 * attention + 4 * 6 * 6),  # 6 pairs of 4 FLOPs for each of 6 elements
        "ssm": 3 * 3 * mamba,
        "mlp": 3 * 3 * expert,
    }


# --- options ---


def test_dtypes_count():
    plain = exact("qwen3.5-27b")
    assert exact("qwen3.5-27b", kv_dtype="fp8").kv_bytes * 2 == plain.kv_bytes
    assert exact("qwen3.5-27b", kv_dtype="float64").kv_bytes == 4 * plain.kv_bytes
    conv = 48 * (2 * 2048 + 6144) * 3 * 2
    assert (
        exact("qwen3.5-27b", state_dtype="float16").state_bytes
        == (plain.state_bytes - conv) // 2 + conv
    )
    assert exact("qwen3.5-27b", conv_dtype="float32").state_bytes == plain.state_bytes + conv
    assert exact("qwen3.5-27b", conv_columns="kernel").state_bytes == plain.state_bytes + conv // 3
    assert exact("qwen3.5-27b", draft_tokens=2).state_bytes == plain.state_bytes + 2 * conv // 3


@pytest.mark.parametrize(
    ("name", "degree", "kv", "state"),
    [
        ("qwen3.5-27b", 4, 4, 4),
        ("qwen3.5-27b", 8, 4, 8),  # 4 KV heads on 8 GPUs: each holds one
        ("minimax-text-01", 8, 8, 8),
        ("kimi-linear-48b-a3b", 4, 1, 4),  # every GPU holds the whole latent
        ("lfm2-1.2b", 2, 2, 2),
    ],
)
def test_heads_are_divided_among_gpus(name: str, degree: int, kv: int, state: int):
    whole, part = exact(name), exact(name, tensor_parallel=degree)
    assert part.kv_bytes * kv == whole.kv_bytes
    assert part.state_bytes * state == whole.state_bytes
    assert part.flops_terms() == whole.flops_terms()


def test_a_group_that_cannot_be_divided_is_on_every_gpu():
    # Bamba: 128 heads x 64, one group of 128: 64 heads and the group itself
    state = 29 * (64 * 64 * 128 * 4 + (64 * 64 + 2 * 128) * 3 * 2)
    assert exact("bamba-9b", tensor_parallel=2).state_bytes == state


def test_active_experts_cost():
    half, all_of_it = exact("jamba-1.5-mini", active_experts=1), exact("jamba-1.5-mini")
    expert = 16 * 2 * 3 * 4096 * 14336
    assert all_of_it.shape.flops_linear - half.shape.flops_linear == expert
    assert half.state_bytes == all_of_it.state_bytes


def test_a_varied_model_says_so_and_an_unchanged_one_is_itself():
    plain = load_model("qwen3.5-4b")
    assert vary(plain, {"kv_dtype": "bfloat16"}) is plain
    varied = vary(plain, {"kv_dtype": "fp8", "tensor_parallel": 2, "draft_tokens": 0})
    assert varied.name == "qwen3.5-4b[kv_dtype=fp8, tensor_parallel=2]"
    assert varied.title.endswith(", with kv_dtype=fp8, tensor_parallel=2")
    assert vary(varied, {"kv_dtype": "bfloat16"}).kv_bytes * 2 == plain.kv_bytes


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("qwen3.5-4b", {"kv_dtyp": "fp8"}, "unknown key 'kv_dtyp'; did you mean 'kv_dtype'?"),
        ("qwen3.5-4b", {"kv_dtype": "int4"}, "kv_dtype = 'int4': unknown"),
        ("qwen3.5-4b", {"kv_dtype": 8}, "known: bfloat16, float16, float32, float64, fp8"),
        ("qwen3.5-4b", {"conv_columns": "4"}, "known: kernel, kernel-1"),
        ("qwen3.5-4b", {"tensor_parallel": 0}, "expected a whole number from 1 to"),
        ("qwen3.5-4b", {"tensor_parallel": True}, "tensor_parallel = True, expected a whole number"),
        ("qwen3.5-4b", {"tensor_parallel": 3}, "cannot divide 16 query heads; give a divisor of 16"),
        ("zamba2-7b", {"tensor_parallel": 32}, "cannot divide 112 state heads"),
        ("mamba2-hybrid-8b", {"tensor_parallel": 64}, "cannot divide 32 query heads"),
        ("qwen3.5-4b", {"draft_tokens": 2, "conv_columns": "kernel"}, "draft_tokens = 2 with conv_columns"),
        ("qwen3.5-4b", {"active_experts": 2}, "unknown key 'active_experts'"),
        ("jamba-1.5-mini", {"active_experts": 17}, "active_experts = 17, expected a whole number from 1 to 16"),
        ("jamba-1.5-mini", {"active_experts": "2"}, "active_experts = '2', expected a whole number"),
        ("llama-3.1-8b", {"state_dtype": "float16"}, "unknown key 'state_dtype'"),
        ("lfm2-1.2b", {"state_dtype": "float16"}, "unknown key 'state_dtype'"),
        ("minimax-text-01", {"conv_columns": "kernel"}, "unknown key 'conv_columns'"),
        ("hybrid-7b", {"kv_dtype": "fp8"}, "unknown key 'kv_dtype'"),
    ],
)  # fmt: skip
def test_options_that_are_not_allowed(name: str, options: dict[str, Any], said: str):
    with pytest.raises(UsageError) as error:
        vary(load_model(name), options)
    assert said in str(error.value)
    assert str(error.value).startswith(f"model '{name}': ")
    assert "\n" not in str(error.value)


@given(st.sampled_from(EXACT), st.sampled_from(["float32", "bfloat16", "fp8"]))
def test_bytes_are_proportional_to_the_dtype(name: str, dtype: str):
    size = {"float32": 4, "bfloat16": 2, "fp8": 1}[dtype]
    assert exact(name, kv_dtype=dtype).kv_bytes * 2 == exact(name).kv_bytes * size


# --- where they are used ---


def test_a_replay_with_an_exact_model():
    trace = ms.load_trace("taubench", sessions=8)
    result = ms.simulate(trace, policy="marconi", model="qwen3.5-4b", capacity="2GB", check=True)
    assert result.summary["accounting"] == "exact"
    assert result.summary["model"] == "qwen3.5-4b"
    assert 0 < result.summary["token_hit_rate"] < 1
    assert result.summary["evictions"] > 0
    assert result.summary["peak_bytes"] <= 2 * 10**9


def test_the_published_code_has_no_such_accounting():
    with pytest.raises(UsageError, match="its accounting is 'exact', and the published code"):
        ms.simulate("taubench", policy="marconi", model="qwen3.5-4b", rules="artifact")


def test_the_page_of_models_is_up_to_date():
    spec = importlib.util.spec_from_file_location(
        "models_page", REPOSITORY / "docs" / "models_page.py"
    )
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    text = page.PAGE.read_text("utf-8")
    assert page.renewed(text, "models", page.registry()) == text


# --- files ---

GOOD = """title = "mine"
source = "me"
accounting = "exact"
unverified = ["hidden_size", "moe.size"]
unverified_because = "a guess"
hidden_size = 4

[attention]
layers = 2
query_heads = 3
kv_heads = 1
head_dim = 2

[mamba2]
layers = 3
heads = 4
head_dim = 2
state_dim = 8
groups = 1
kernel = 4

[moe]
layers = 3
experts = 5
active_experts = 2
size = 7
shared_size = 6
"""


def write(folder: Path, old: str = "", new: str = "") -> Path:
    assert old in GOOD
    path = folder / "mine.toml"
    path.write_text(GOOD.replace(old, new, 1) if old else GOOD)
    return path


def test_a_model_of_ones_own(tmp_path: Path):
    mine = load_model(write(tmp_path))
    assert isinstance(mine, ExactModel)
    assert mine.name == "mine"
    assert mine.kv_bytes == 2 * 2 * 1 * 2 * 2
    assert mine.state_bytes == 3 * (4 * 2 * 8 * 4 + (8 + 2 * 8) * 3 * 2)
    assert mine.unverified == ("hidden_size = 4", "moe.size = 7")
    assert mine.unverified_because == "a guess"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("hidden_size = 4\n", "", "no key 'hidden_size'; a model needs it"),
        ("hidden_size = 4", "hidden_size = 0", ":6: hidden_size = 0, expected a whole number from 1"),
        ("kv_heads = 1\n", "", ":8: no key 'kv_heads' in [attention]; a model needs it"),
        ("kv_heads = 1", "kv_head = 1", ":11: unknown key 'kv_head' in [attention]; did you mean 'kv_heads'?"),
        ("kv_heads = 1", "kv_heads = 1.5", ":11: kv_heads = 1.5, expected a whole number"),
        ("groups = 1", "groups = 0", ":19: groups = 0, expected a whole number from 1"),
        ("[mamba2]", "[mamba3]", ":14: unknown key 'mamba3'; did you mean 'mamba2'?"),
        ("active_experts = 2", "active_experts = 6", "active_experts = 6, expected a whole number from 1 to 5"),
        ("[moe]", "[lightning]\nlayers = 1\nheads = 4\nhead_dim = 3\n[moe]", "[lightning] beside [mamba2]"),
        ('"moe.size"', '"moe.sizes"', ":4: unverified: no key 'moe.sizes' in this file"),
        ('"moe.size"', '"mow.size"', ":4: unverified: no key 'mow.size' in this file"),
        ('unverified_because = "a guess"\n', "", "no key 'unverified_because'"),
        ("shared_size = 6", "gated = 1", "gated = 1, expected true or false"),
        ('accounting = "exact"\n', "", "no key 'accounting'; a model needs it"),
    ],
)  # fmt: skip
def test_files_that_are_no_model(tmp_path: Path, old: str, new: str, said: str):
    path = write(tmp_path, old, new)
    with pytest.raises(UserError) as error:
        load_model(path)
    assert str(error.value).startswith(f"{path}:")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_nothing_to_cache(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(
        GOOD[: GOOD.index("[attention]")].replace('"moe.size"', "") + GOOD[GOOD.index("[moe]") :]
    )
    with pytest.raises(UserError, match="there is nothing to cache"):
        load_model(path)
