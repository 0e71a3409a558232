"""Models read from configurations against transformers itself: its own form of a configuration, caches and weights."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
from configs import CONFIGS, config

from marconi_sim.model import ExactModel, read_config, vary
from marconi_sim.model.layers import MoE
from marconi_sim.model.recurrent import Recurrent

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")
TOKENS = 37
# The texts of a model that also sees images are tried on their own; MiniMax has a cache of another make.
WITH_CACHE = [name for name in CONFIGS if name not in ("qwen3_5", "qwen3_5_moe", "minimax")]
SCAN = {"Mamba1": 6, "Mamba2": 5, "GatedDeltaNet": 7, "KimiDeltaAttention": 7, "ShortConv": 0}
BIASES = ("bias", "norm", "A_log", ".D", "dt_bias", "embed", "lm_head", "e_score")


def theirs(family: str, **changes: Any) -> Any:
    """Return transformers' object of our configuration."""
    return transformers.AutoConfig.for_model(**config(family, **changes))


@pytest.mark.parametrize("family", CONFIGS)
def test_both_forms_of_a_configuration_are_the_same_model(family: str):
    try:
        known = theirs(family)
    except ValueError as error:
        pytest.skip(f"this transformers does not know the family ({error})")
    assert (
        read_config(known.to_dict(), "tiny", "place").parts
        == read_config(config(family), "tiny", "place").parts
    )


def run(family: str, dtype: Any, **changes: Any) -> tuple[Any, Any, ExactModel]:
    """Return transformers' model with random weights, its cache after a prefill, and our model of its configuration."""
    try:
        known = theirs(family, **changes)
    except ValueError as error:
        pytest.skip(f"this transformers does not know the family ({error})")
    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(known, dtype=dtype).eval()
    names = inspect.signature(network.forward).parameters
    keyword = next(name for name in ("cache", "past_key_values", "cache_params") if name in names)
    cache = transformers.DynamicCache(config=network.config)
    with torch.no_grad():
        network(
            torch.randint(3, 100, (1, TOKENS)),
            position_ids=torch.arange(TOKENS)[None],
            use_cache=True,
            **{keyword: cache},
        )
    model = read_config(network.config.to_dict(), family, "place")
    if "conv_columns" in model.options():
        changed = vary(model, {"conv_columns": "kernel"})
        assert isinstance(changed, ExactModel)
        model = changed
    return network, cache, model


def tensors(cache: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"kv": [], "conv": [], "recurrent": []}
    for layer in cache.layers:
        if getattr(layer, "keys", None) is not None:
            found["kv"] += [layer.keys, layer.values]
        for name in ("conv", "recurrent"):
            states = getattr(layer, f"{name}_states", {})
            found[name] += [state for state in states.values() if state is not None]
    return found


def check_bytes(cache: Any, model: ExactModel) -> None:
    held = {name: sum(one.nbytes for one in found) for name, found in tensors(cache).items()}
    assert held["kv"] == TOKENS * model.kv_bytes
    assert held["conv"] + held["recurrent"] == model.state_bytes


@pytest.mark.parametrize("family", WITH_CACHE)
def test_caches_hold_the_bytes_that_we_count(family: str):
    _, cache, model = run(family, torch.bfloat16)
    check_bytes(cache, model)


@pytest.mark.parametrize(
    "family", [name for name in WITH_CACHE if name != "zamba2"]
)  # weights used twice
def test_matrix_products_are_twice_the_weights(family: str):
    experts = {
        key: 8 for key in ("num_experts_per_tok", "num_experts_per_token") if key in CONFIGS[family]
    }
    if family == "jamba":
        experts = {"num_experts_per_tok": 4}
    network, cache, model = run(family, torch.float32, **experts)
    check_bytes(cache, model)
    assert all(p.active_experts == p.experts for p in model.parts if isinstance(p, MoE))
    weights = sum(
        weight.numel()
        for name, weight in network.named_parameters()
        if not any(word in name for word in BIASES)
    )
    elements = sum(state.numel() for state in tensors(cache)["recurrent"])
    scan = sum(SCAN[type(p).__name__] for p in model.parts if isinstance(p, Recurrent)) * elements
    shape = model.shape
    # A token sees itself too: as many FLOPs per token as per pair.
    assert shape.flops_linear == 2 * weights + scan + shape.flops_quadratic
