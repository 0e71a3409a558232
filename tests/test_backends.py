"""Models of transformers as backends: which are exact, which are refused, and that nothing needs torch by accident."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support import REPOSITORY

from marconi_sim.base.errors import UsageError, UserError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)

from restored import check_exactness  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from marconi_sim.adapters import memory, transformers_model  # noqa: E402
from marconi_sim.adapters.backend import footprint, nbytes, slice_kv  # noqa: E402
from marconi_sim.adapters.exactness import (  # noqa: E402
    EXACT,
    largest_error,
    strict_float64,
)
from marconi_sim.adapters.families import FAMILIES, REFUSED, check_config, tiny_config  # noqa: E402
from marconi_sim.adapters.transformers_model import load_transformers  # noqa: E402


def draw(count: int, seed: int = 0):
    return torch.randint(0, 97, (count,), generator=torch.Generator().manual_seed(seed))


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY
    ).stdout


@pytest.mark.parametrize("family", FAMILIES)
def test_reuse_is_exact(family):
    tokens = draw(70)
    model = load_transformers(family, dtype="float64")
    with strict_float64():
        assert set(model.storage.values()) == {"float64", "kernel"}
        found = check_exactness(model, tokens, 41, (7, 20))
        assert found.exact, found
        assert min(found[1:]) > 1

        # In pieces, some of one token; on from each of the states, with KV that another pass made.
        full = model.prefill(tokens, 0, None, None, ())
        cuts = [1, 16, 32, 33, 34, 36, 39, 69, 70]
        pieces = model.prefill(tokens, 0, None, None, cuts)
        assert largest_error(pieces.last_logits, full.last_logits) < EXACT
        assert list(pieces.states) == cuts
        for cut in (1, 33, 69):
            kv, state = slice_kv(full.kv, 0, cut), pieces.states[cut]
            passed = [*kv, *state]
            before = [tensor.clone() for tensor in passed]
            rest = model.prefill(tokens[cut:], cut, kv, state, sorted({cut + 1, 70}))
            assert largest_error(rest.last_logits, full.last_logits) < EXACT
            assert all(torch.equal(a, b) for a, b in zip(passed, before, strict=True))
            # What comes back is its own: nothing shared, nothing larger kept alive.
            tensors = [rest.last_logits, *rest.kv, *(t for s in rest.states.values() for t in s)]
            for tensor in tensors:
                assert tensor.untyped_storage().nbytes() == nbytes([tensor])
            pointers = [t.untyped_storage().data_ptr() for t in (*tensors, *passed)]
            assert len(set(pointers)) == len(pointers)
            assert all(t.shape[-2] == 70 - cut for t in rest.kv)


def test_dtypes_of_kv_and_states():
    for family, dtype, state in (
        ("bamba", "bfloat16", "float32"),
        ("qwen3_next", "bfloat16", "float32"),
        ("lfm2", "bfloat16", "bfloat16"),  # it has no recurrent state
        ("bamba", "float32", "float32"),
    ):
        storage = load_transformers(family, dtype=dtype).storage
        assert storage == {
            "kv_dtype": dtype, "conv_dtype": dtype, "state_dtype": state, "conv_columns": "kernel",
        }  # fmt: skip
    # An attention layer: keys and values of 2 heads of 8. Three Mamba-2 layers: 4 columns of 64 + 2 x 2 x 8 channels,
    # and 4 heads of 16 x 8.
    model = load_transformers("bamba", dtype="bfloat16")
    assert footprint(model) == (2 * 2 * 8 * 2, 3 * (96 * 4 * 2 + 4 * 16 * 8 * 4))


def test_a_seed_gives_weights_and_leaves_the_global_one_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    models = [load_transformers("bamba", seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(3), expected)
    logits = [model.prefill(draw(9), 0, None, None, ()).last_logits for model in models]
    assert torch.equal(logits[0], logits[1])
    assert largest_error(logits[0], logits[2]) > 0.1


def test_strict_float64_puts_everything_back():
    before = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    with strict_float64():
        dtypes = {torch.ones(1, dtype=torch.float32).dtype, torch.ones(1).float().dtype}
    assert dtypes == {torch.float64}
    assert (torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()) == before
    with pytest.raises(RuntimeError, match="before the block"), strict_float64():
        load_transformers("bamba")
    assert (torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()) == before
    assert str(torch.float32) == "torch.float32"


def test_a_cache_that_is_not_used_is_noticed(monkeypatch):
    monkeypatch.setattr(transformers_model, "_cache_keyword", lambda model: "cache_of_states")
    with pytest.raises(RuntimeError, match="it was not used"):
        load_transformers("bamba")


@pytest.mark.parametrize("family", REFUSED)
def test_families_that_cannot_continue_are_refused(family):
    for source in (family, {"model_type": family}):
        with pytest.raises(UserError) as caught:
            load_transformers(source)
        assert REFUSED[family] in str(caught.value)
        assert "bamba" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "lama"},
            "configuration: model_type 'lama': unknown; did you mean 'bamba'? known: bailing_hybrid",
        ),
        ({"model_type": None}, "key 'model_type' is missing, expected one of: bamba"),
        ({"model_type": 5}, "configuration: model_type = 5, expected one of: bamba"),
        (
            {"model_type": ["bamba"]},
            "configuration: model_type = ['bamba'], expected one of: bamba",
        ),
        ({"model_type": "qwen3_5", "text_config": 5}, "text_config = 5, expected an object"),
        ({"layer_types": 5}, "layer_types = 5, expected a list of kinds of layers"),
        ({"layer_types": [5]}, "configuration: transformers cannot make a model of it ("),
        (
            {"sliding_window": 128, "use_sliding_window": "no"},
            "use_sliding_window = 'no', expected true or false",
        ),
        ({"sliding_window": 128}, "sliding_window = 128 is not supported: a sliding window keeps"),
        ({"layer_types": ["sliding_attention"]}, "layer type 'sliding_attention' is not supported"),
        ({"hidden_size": "wide"}, "configuration: transformers cannot make a model of it ("),
        (
            {"attn_layer_indices": []},
            "transformers bamba, random weights: no layer of its configuration has",
        ),
        ({"model_type": "lfm2_moe", "layer_types": None}, "transformers cannot make a model of it"),
        ({"mamba_n_heads": 7}, "configuration: transformers cannot make a model of it ("),
    ],
)
def test_configurations_that_are_refused(changes, message):
    with pytest.raises(UserError) as caught:
        load_transformers({**tiny_config("bamba"), **changes})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_window_that_is_not_used_is_full_attention():
    config = tiny_config("bamba")
    expected = load_transformers(config).prefill(draw(30), 0, None, None, ()).last_logits
    unused = {"sliding_window": 8, "use_sliding_window": False}
    found = load_transformers({**config, **unused})
    assert found.config["sliding_window"] is None
    assert torch.equal(found.prefill(draw(30), 0, None, None, ()).last_logits, expected)


@pytest.mark.parametrize("infinity", [{"__float__": "Infinity"}, float("inf")])
def test_an_infinite_step_limit(infinity, tmp_path):
    config = {**tiny_config("bamba"), "time_step_limit": [0.0, infinity]}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8-sig")
    for source in (config, path):
        assert load_transformers(source).config["time_step_limit"] == [0.0, float("inf")]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_saves_can_be_read(family, tmp_path):
    transformers.AutoConfig.for_model(**tiny_config(family)).save_pretrained(tmp_path)
    found = load_transformers(tmp_path / "config.json").config
    del found["transformers_version"]  # the version that saved it
    assert found.items() <= load_transformers(family).config.items()


def test_a_language_model_inside_another_configuration():
    inner = tiny_config("qwen3_5_text")
    assert check_config({"model_type": "qwen3_5", "text_config": inner}, "x") == inner


def test_files(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tiny_config("bamba")))
    model = load_transformers(path)
    assert model.name == f"transformers bamba of {path}, random weights"
    assert model.random_weights
    expected = model.prefill(draw(30), 0, None, None, ()).last_logits
    with pytest.raises(UserError, match="not a checkpoint that transformers can load"):
        load_transformers(tmp_path)
    model._model.save_pretrained(tmp_path / "checkpoint")
    loaded = load_transformers(tmp_path / "checkpoint")
    assert loaded.name == "checkpoint checkpoint"
    assert not loaded.random_weights
    assert torch.equal(loaded.prefill(draw(30), 0, None, None, ()).last_logits, expected)

    for text, message in (("{", "not JSON"), ("[]", "which is a JSON object, in braces")):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            load_transformers(path)
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        load_transformers(tmp_path)
    with pytest.raises(UserError, match=r"neither a family \(bamba, .* nor a config.json"):
        load_transformers("bambi")


@pytest.fixture
def checkpoint(tmp_path):
    """Return the folder of a tiny checkpoint."""
    load_transformers("bamba")._model.save_pretrained(tmp_path)
    return tmp_path


def refusal(folder, capfd) -> str:
    capfd.readouterr()
    with pytest.raises(UserError) as caught:
        load_transformers(folder)
    assert capfd.readouterr() == ("", "")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_loading_a_checkpoint_is_quiet_and_leaves_the_log_alone(checkpoint, capfd):
    log = transformers.utils.logging
    before = log.get_verbosity(), log.is_progress_bar_enabled()
    capfd.readouterr()
    load_transformers(checkpoint)
    assert capfd.readouterr() == ("", "")
    assert (log.get_verbosity(), log.is_progress_bar_enabled()) == before


def test_a_truncated_checkpoint(checkpoint, capfd):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    said = refusal(checkpoint, capfd)
    assert said.startswith(f"{checkpoint}: not a checkpoint that transformers can load; ")
    assert "incomplete" in said


def test_a_checkpoint_without_some_tensors(checkpoint, capfd):
    path = checkpoint / "model.safetensors"
    weights = load_file(path)
    for key in [key for key in weights if "q_proj" in key or "A_log" in key]:
        del weights[key]
    save_file(weights, path, metadata={"format": "pt"})
    said = refusal(checkpoint, capfd)
    assert "4 tensors of the model missing, the first is 'model.layers.0.mamba.A_log'" in said


def test_a_checkpoint_of_another_shape(checkpoint, capfd):
    path = checkpoint / "model.safetensors"
    weights = load_file(path)
    key = next(key for key in weights if "q_proj" in key)
    weights[key] = torch.zeros(3, 5)
    save_file(weights, path, metadata={"format": "pt"})
    assert f"tensor '{key}' is 3 x 5, expected 32 x 32; " in refusal(checkpoint, capfd)


def test_a_checkpoint_with_values_that_are_wrong(checkpoint, capfd):
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hidden_size": "x"}))
    assert refusal(checkpoint, capfd).startswith(f"{path}: transformers cannot make a model of it")


def test_a_checkpoint_that_does_not_fit_is_refused_before_it_is_read(
    checkpoint, capfd, monkeypatch
):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    (checkpoint / "model.safetensors").unlink()
    assert "device cpu: 1 KB free, at least" in refusal(checkpoint, capfd)


def test_the_text_part_of_a_checkpoint_that_also_sees_images(tmp_path):
    vision = {
        "depth": 1, "hidden_size": 16, "num_heads": 2, "out_hidden_size": 32, "intermediate_size": 16,
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(
        "qwen3_5", text_config=tiny_config("qwen3_5_text"), vision_config=vision
    )
    whole = transformers.Qwen3_5ForConditionalGeneration(config).eval()
    whole.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = whole(input_ids=draw(30)[None]).logits[0, -1]
    found = load_transformers(tmp_path).prefill(draw(30), 0, None, None, ()).last_logits
    assert largest_error(found, expected) < 1e-4


def test_unknown_dtypes_and_devices_are_refused():
    with pytest.raises(UsageError, match="dtype 'float8': unknown; did you mean"):
        load_transformers("bamba", dtype="float8")
    with pytest.raises(UsageError, match="device 'gpu': unknown"):
        load_transformers("bamba", device="gpu")


def test_the_base_install_does_not_import_torch():
    code = (
        "import sys, marconi_sim as ms, marconi_sim.cli;"
        "ms.simulate, ms.load_trace, ms.load_model;"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert run(code) == "[]\n"


@pytest.mark.parametrize(
    ("package", "module"),
    [("torch", "backend"), ("torch", "hybrid_model"), ("transformers", "transformers_model")],
)
def test_a_missing_package_names_the_extra(package, module):
    code = f"""
import sys
sys.modules[{package!r}] = None
from marconi_sim.base.errors import UserError
try:
    import marconi_sim.adapters.{module}
except UserError as error:
    print(error)
"""
    printed = run(code)
    assert f"needs {package}, which cannot be imported" in printed
    assert "pip install 'marconi-sim[torch]'" in printed
