"""Hugging Face configurations as models: every family, both forms of a configuration, and what is refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from configs import CONFIGS, config

import marconi_sim as ms
from marconi_sim.base.errors import UserError
from marconi_sim.model import ExactModel, load_model, read_config
from marconi_sim.model.config_file import read_json
from marconi_sim.model.families import FAMILIES

# Family -> layers {attention, recurrent, feed-forward}; bytes of one layer: of KV, of a state.
KV = 2 * 2 * 16 * 2
MAMBA2 = 8 * 16 * 16 * 4 + (128 + 2 * 16) * 3 * 2
DELTA = 4 * 16 * 24 * 4 + (2 * 2 * 16 + 4 * 24) * 3 * 2
LATENT = (32 + 8) * 2
EXPECTED = {
    "bailing_hybrid": ((2, 5, 7), LATENT, 4 * 16 * 16 * 4 + 3 * 64 * 3 * 2),
    "bamba": ((1, 3, 4), KV, MAMBA2),
    "falcon_h1": ((3, 3, 3), KV, 4 * 12 * 16 * 4 + (48 + 2 * 16) * 3 * 2),
    "granitemoehybrid": ((1, 2, 3), KV, MAMBA2),
    "jamba": ((2, 6, 8), KV, 128 * 16 * 4 + 128 * 3 * 2),
    "kimi_linear": ((1, 4, 5), LATENT, 2 * 16 * 16 * 4 + 3 * 32 * 3 * 2),
    "lfm2": ((1, 3, 4), KV, 64 * 2 * 2),
    "lfm2_moe": ((1, 3, 4), KV, 64 * 2 * 2),
    "llama": ((3, 0, 3), KV, 0),
    "minimax": ((1, 3, 4), 2 * 2 * 20 * 2, 4 * 20 * 20 * 4),
    "mistral": ((3, 0, 3), 2 * 2 * 24 * 2, 0),
    "nemotron_h": ((1, 4, 3), 2 * 2 * 24 * 2, 4 * 12 * 16 * 4 + (48 + 2 * 2 * 16) * 3 * 2),
    "olmo_hybrid": ((1, 3, 4), KV, 4 * 16 * 24 * 4 + (2 * 4 * 16 + 4 * 24) * 3 * 2),
    "qwen2": ((3, 0, 3), KV, 0),
    "qwen3": ((3, 0, 3), 2 * KV, 0),
    "qwen3_5": ((1, 3, 4), 2 * KV, DELTA),
    "qwen3_5_moe": ((1, 3, 4), 2 * KV, DELTA),
    "qwen3_5_moe_text": ((1, 3, 4), 2 * KV, DELTA),
    "qwen3_5_text": ((1, 3, 4), 2 * KV, DELTA),
    "qwen3_next": ((1, 3, 4), 2 * KV, DELTA),
    "zamba2": ((2, 5, 2), 2 * 4 * 32 * 2, MAMBA2),
}

WITH_STEP_LIMIT = ("bamba", "falcon_h1", "granitemoehybrid", "nemotron_h")  # infinity


def read(family: str, **changes: Any) -> ExactModel:
    return read_config(config(family, **changes), "tiny", "place")


def words(family: str, **changes: Any) -> dict[str, str]:
    return read(family, **changes).describe()


def test_every_family_is_tried():
    assert set(EXPECTED) == set(CONFIGS) == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str):
    model = read(family)
    layers, kv, state = EXPECTED[family]
    assert tuple(model.layers().values()) == layers
    assert model.kv_bytes_of_layer == kv
    assert model.state_bytes_of_layer == state
    assert model.accounting == "exact"
    assert all(
        value > 0 for kind, value in model.flops_by_layer(10).items() if model.layers()[kind]
    )


def test_details():
    assert words("nemotron_h")["moe"] == (
        "2 layers, experts 8, active experts 2, size 40, shared size 48, latent size 32, not gated"
    )
    assert words("nemotron_h")["mlp"] == "1 layer, size 96, not gated"
    assert words("zamba2")["mlp"] == "2 layers, size 96, adapter rank 8, projected"
    assert words("zamba2")["attention"].endswith("input size 128")
    assert words("lfm2")["mlp"] == "4 layers, size 112"  # 1.5 x 66 in multiples of 16
    assert words("lfm2", block_auto_adjust_ff_dim=False)["mlp"] == "4 layers, size 100"
    assert words("granitemoehybrid", num_local_experts=0)["mlp"] == "3 layers, size 48"
    assert words("jamba")["moe"].startswith("4 layers")
    assert "moe" not in words("jamba", num_experts=1)
    assert words("jamba", mamba_dt_rank="auto") == words("jamba")
    assert words("qwen3_next")["moe"].startswith(
        "3 layers, experts 8, active experts 2, size 40, shared size 48"
    )
    assert words("qwen3_next")["mlp"] == "1 layer, size 96"
    assert words("kimi_linear")["kda"] == "4 layers, heads 2, head dim 16, kernel 4, gate rank 16"
    assert words("bailing_hybrid")["moe"].startswith(
        "5 layers, experts 8, active experts 2, size 40, shared size 80"
    )
    expanded = {**config("falcon_h1", mamba_d_head="auto"), "mamba_d_ssm": None}
    assert (
        read_config(expanded, "tiny", "place")
        .describe()["mamba2"]
        .startswith("3 layers, heads 4, head dim 32")
    )


def test_the_other_way_to_say_the_same():
    types = ["mamba", "mlp", "mamba", "attention", "mamba", "moe", "mamba", "moe"]
    assert words("nemotron_h", hybrid_override_pattern=None, layers_block_type=types) == words(
        "nemotron_h"
    )
    pattern = {"hybrid_override_pattern": None, "layer_types": None, "layers_block_type": types}
    renamed = {"n_groups": None, "mamba_n_groups": 2, "conv_kernel": None, "mamba_d_conv": 4}
    assert words("nemotron_h", **pattern, **renamed) == words("nemotron_h")
    by_id = {"layers_block_type": None, "hybrid_layer_ids": [1, 3]}
    assert words("zamba2", **by_id) == words("zamba2")
    types = ["linear_attention", "full_attention", "linear_attention"]
    assert words("granitemoehybrid", layer_types=None, layers_block_type=types) == words(
        "granitemoehybrid"
    )
    assert (
        words("llama", num_key_value_heads=None)["attention"]
        == "3 layers, query heads 4, kv heads 4, head dim 16"
    )


def test_dtypes():
    assert read("llama").kv_bytes == 3 * KV  # float16
    assert read("llama", dtype="float32").kv_bytes == 6 * KV
    assert read("llama", dtype=None, torch_dtype="torch.float64").kv_bytes == 12 * KV
    assert read("bamba", dtype="float32").storage.conv_dtype == "float32"
    assert read("bamba", dtype="float32").storage.state_dtype == "float32"
    assert read("nemotron_h", mamba_ssm_cache_dtype="float16").storage.state_dtype == "float16"
    assert read("llama").notes == ()
    assert read("bamba").notes == (
        "It names no dtype: bfloat16 is assumed for KV and convolution.",
    )


def test_what_is_left_out_is_said():
    assert "vision" in " ".join(read("qwen3_5").notes)
    assert "draft tokens" in " ".join(read("bailing_hybrid").notes)
    assert "adapters" in " ".join(read("zamba2", use_shared_attention_adapter=True).notes)


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("bamba", {"model_type": "gpt_9"}, "model_type 'gpt_9': unknown; known: bailing_hybrid, bamba, falcon_h1"),
        ("bamba", {"model_type": "bambi"}, "did you mean 'bamba'?"),
        ("bamba", {"model_type": None}, "no key 'model_type'; known families: bailing_hybrid, bamba"),
        ("bamba", {"mamba_d_state": None}, "no key 'mamba_d_state'; a bamba model needs it"),
        ("bamba", {"hidden_size": None}, "no key 'hidden_size'; a bamba model needs it"),
        ("bamba", {"hidden_size": "64"}, "hidden_size = '64', expected a whole number from 1 to"),
        ("bamba", {"attn_layer_indices": [1, 2, 3, 4]}, "attn_layer_indices: 4, expected the number of a layer"),
        ("nemotron_h", {"hybrid_override_pattern": "M-X"}, "unknown letter 'X', allowed: M * - E"),
        ("nemotron_h", {"hybrid_override_pattern": None}, "no key 'layers_block_type' (or layer_types)"),
        ("nemotron_h", {"n_groups": None}, "no key 'n_groups' (or mamba_n_groups); a nemotron_h model needs it"),
        ("nemotron_h", {"sliding_window": 512}, "sliding_window = 512: attention with a sliding window is not"),
        ("mistral", {"sliding_window": 4096}, "sliding_window = 4096"),
        ("qwen2", {"use_sliding_window": True}, "sliding_window = 4096"),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types: a layer 'sliding_attention'"),
        ("minimax", {"layer_types": None}, "no key 'layer_types'; a minimax model needs it"),
        ("minimax", {"layer_types": "linear"}, "expected a list of kinds of layers"),
        ("zamba2", {"layers_block_type": None}, "no key 'layers_block_type' or 'hybrid_layer_ids'"),
        ("granitemoehybrid", {"num_experts_per_tok": 9}, "active_experts = 9, expected a whole number from 1 to 8"),
        ("llama", {"dtype": "int3"}, "dtype = 'int3', allowed: float64, float32, bfloat16, float16, fp8"),
        ("qwen3_5", {"text_config": 3}, "text_config = 3, expected an object"),
        ("bamba", {"model_type": 5}, "model_type = 5, expected one of: bailing_hybrid, bamba"),
        ("bamba", {"model_type": ["bamba"]}, "model_type = ['bamba'], expected one of"),
        ("bamba", {"model_type": {}}, "model_type = {}, expected one of"),
        ("bamba", {"model_type": "a\nb"}, r"model_type 'a\nb': unknown"),
        ("bamba", {"attn_layer_indices": 5}, "attn_layer_indices = 5, expected a list of numbers of layers"),
        ("bamba", {"attn_layer_indices": "13"}, "attn_layer_indices = '13', expected a list of numbers"),
        ("bamba", {"attn_layer_indices": [1, [2]]}, "attn_layer_indices: [2], expected the number of a layer"),
        ("bamba", {"attn_layer_indices": [2, True]}, "attn_layer_indices: True, expected the number of a layer"),
        ("bamba", {"attn_layer_indices": [1, 1]}, "attn_layer_indices: layer 1 is in it more than once"),
        ("bamba", {"mamba_d_head": "auto", "mamba_n_heads": 129}, "mamba_d_head comes out as 0 (128 channels"),
        ("zamba2", {"layers_block_type": None, "hybrid_layer_ids": 5}, "hybrid_layer_ids = 5, expected a list"),
        ("zamba2", {"num_attention_heads": 129}, "attention_head_dim comes out as 0 (2 x hidden_size"),
        ("zamba2", {"n_mamba_heads": 129}, "mamba_headdim comes out as 0 (mamba_expand x hidden_size / n_mamba_heads"),
        ("zamba2", {"use_shared_attention_adapter": 1}, "use_shared_attention_adapter = 1, expected true or false"),
        ("lfm2", {"full_attn_idxs": 5}, "full_attn_idxs = 5, expected a list of numbers of layers"),
        ("lfm2", {"full_attn_idxs": [9]}, "full_attn_idxs: 9, expected the number of a layer from 0 to 3"),
        ("lfm2", {"block_ffn_dim_multiplier": "x"}, "block_ffn_dim_multiplier = 'x', expected a number above 0"),
        ("lfm2", {"block_ffn_dim_multiplier": [1]}, "block_ffn_dim_multiplier = [1], expected a number above 0"),
        ("lfm2", {"block_ffn_dim_multiplier": 1e308}, "block_ffn_dim_multiplier = 1e+308, expected a number above 0"),
        ("lfm2", {"block_ffn_dim_multiplier": -1}, "block_ffn_dim_multiplier = -1, expected a number above 0"),
        ("lfm2", {"block_ffn_dim_multiplier": {"__float__": "NaN"}}, "block_ffn_dim_multiplier = nan, expected"),
        ("lfm2", {"block_ffn_dim_multiplier": 1e-9}, "intermediate_size comes out as 0 (2/3 of it"),
        ("nemotron_h", {"hybrid_override_pattern": 5}, "hybrid_override_pattern = 5, expected a text"),
        ("nemotron_h", {"hybrid_override_pattern": ["M"]}, "hybrid_override_pattern = ['M'], expected a text"),
        ("nemotron_h", {"num_hidden_layers": 9}, "hybrid_override_pattern lists 8 layers, num_hidden_layers = 9"),
        ("nemotron_h", {"mamba_ssm_dtype": "int8"}, "mamba_ssm_dtype = 'int8', allowed: float64"),
        ("nemotron_h", {"n_groups": None, "mamba_n_groups": "2"}, "mamba_n_groups = '2', expected a whole number"),
        ("minimax", {"num_hidden_layers": 5}, "layer_types lists 4 layers, num_hidden_layers = 5: expected as many"),
        ("minimax", {"layer_types": ["full_attention", [3]]}, "layer_types: a layer [3]; the layers of a minimax"),
        ("kimi_linear", {"linear_attn_config": [1]}, "linear_attn_config = [1], expected an object"),
        ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [0]}}, "full_attn_layers: 0, expected the"),
        ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [6]}}, "number of a layer from 1 to 5"),
        ("kimi_linear", {"mlp_layer_types": 5}, "mlp_layer_types = 5, expected a list of kinds of layers"),
        ("kimi_linear", {"mlp_layer_types": ["dense"]}, "mlp_layer_types lists 1 layers, num_hidden_layers = 5"),
        ("kimi_linear", {"first_k_dense_replace": 6}, "more layers of one kind than there are layers"),
        ("qwen3_next", {"mlp_only_layers": 5}, "mlp_only_layers = 5, expected a list of numbers of layers"),
        ("jamba", {"attn_layer_offset": 4}, "attn_layer_offset = 4, expected less than attn_layer_period = 4"),
        ("jamba", {"expert_layer_offset": 2}, "expert_layer_offset = 2, expected less than expert_layer_period = 2"),
        ("llama", {"num_attention_heads": 65}, "head_dim comes out as 0 (hidden_size / num_attention_heads"),
        ("llama", {"sliding_window": 4096, "use_sliding_window": "no"}, "use_sliding_window = 'no', expected true"),
        ("llama", {"num_hidden_layers": "x" * 1000}, "expected a whole number from 1 to"),
    ],
)  # fmt: skip
def test_what_is_refused(family: str, changes: dict[str, Any], said: str):
    with pytest.raises(UserError) as error:
        read(family, **changes)
    assert said in str(error.value)
    assert str(error.value).startswith("place: ")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


# Keys for which transformers' class has a number of its own where they are missing.
NEEDED = {
    "num_key_value_heads": (
        "bamba", "falcon_h1", "jamba", "lfm2", "lfm2_moe", "minimax", "mistral", "nemotron_h", "qwen2", "qwen3",
        "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next",
    ),
    "head_dim": ("bailing_hybrid", "nemotron_h", "qwen3", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
    "num_experts": ("qwen3_5_moe_text", "qwen3_next"),
    "mamba_d_ssm": ("falcon_h1",),
    "sliding_window": ("mistral",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "family"), [(key, family) for key, families in NEEDED.items() for family in families]
)
def test_what_transformers_would_not_derive_has_to_be_there(key: str, family: str):
    values = config(family)
    values.pop(key, None)
    with pytest.raises(UserError, match=f"no key '.*{key}'.*; a {family} model needs it"):
        read_config(values, "tiny", "place")


@pytest.mark.parametrize(
    ("key", "family"),
    [
        (key, family)
        for key in ("num_key_value_heads", "head_dim")
        for family in FAMILIES
        if family not in NEEDED[key] and "text_config" not in CONFIGS[family]
    ],
)
def test_a_missing_key_means_what_transformers_takes_for_it(key: str, family: str):
    transformers = pytest.importorskip("transformers")
    values = config(family)
    values.pop(key, None)
    theirs = transformers.AutoConfig.for_model(**values).to_dict()
    assert read_config(values, "tiny", "place").parts == read_config(theirs, "tiny", "place").parts


def test_a_window_that_is_not_used_is_full_attention():
    plain = read("llama")
    assert read("llama", sliding_window=4096, use_sliding_window=False).parts == plain.parts


# --- files ---


def test_a_file_is_named_by_its_folder_and_runs(tmp_path: Path):
    path = tmp_path / "tiny-bamba" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config("bamba")))
    model = load_model(path)
    assert (model.name, model.path) == ("tiny-bamba", path)
    assert model.kv_bytes == read("bamba").kv_bytes
    result = ms.simulate("taubench", policy="sglang+", model=str(path), capacity="2MB", check=True)
    assert result.summary["model"] == "tiny-bamba"
    other = path.rename(tmp_path / "other.json")
    assert load_model(str(other)).name == "other"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_saves_can_be_read(family: str, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    transformers.AutoConfig.for_model(**config(family)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    assert load_model(path).parts == read(family).parts
    # Older versions wrote infinity as Python does.
    path.write_text(re.sub(r"\{\s*\"__float__\": \"(\w+)\"\s*\}", r"\1", path.read_text()))
    assert ("Infinity" in path.read_text()) == (family in WITH_STEP_LIMIT)
    assert load_model(path).parts == read(family).parts


def test_floats_that_json_lacks(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(
        '{"a": [0.0, Infinity], "b": {"c": {"__float__": "-Infinity"}}, "d": {"__float__": "x"}}',
        encoding="utf-8-sig",
    )
    assert read_json(path) == {
        "a": [0.0, math.inf], "b": {"c": -math.inf}, "d": {"__float__": "x"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "which is a JSON object"),
        ("null", "which is a JSON object"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, text: str, said: str):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        load_model(path)
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)
