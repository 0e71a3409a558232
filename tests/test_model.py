"""Model shapes: the paper's Table 1, and what is said about files that are no model."""

from __future__ import annotations

from pathlib import Path

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import model

from marconi_sim.base.errors import UsageError, UserError
from marconi_sim.core.shape import prefill_flops
from marconi_sim.model import PaperModel, load_model

shapes = st.builds(
    naive.Shape,
    attention=st.integers(0, 100),
    ssm=st.integers(0, 100),
    mlp=st.integers(0, 100),
    D=st.integers(1, 2**14),
    N=st.integers(1, 2**10),
)


def flops(shape: object, tokens: float) -> float:
    """Call the kernel's function, which has no entry point for Python, uncompiled."""
    return getattr(prefill_flops, "py_func", prefill_flops)(shape, tokens)


@given(shapes)
def test_bytes_are_those_of_the_reference(shape: naive.Shape):
    assert model(shape).kv_bytes == model(shape).shape.kv_bytes == shape.kv_bytes_per_token
    assert model(shape).state_bytes == model(shape).shape.state_bytes == shape.state_bytes


@given(shapes, st.integers(0, 10**6))
def test_flops_are_those_of_the_reference_but_for_one_rounding(shape: naive.Shape, tokens: int):
    exact = shape.flops(tokens)
    assert flops(model(shape).shape, float(tokens)) == pytest.approx(exact, rel=4e-16)
    assert sum(model(shape).flops_by_layer(tokens).values()) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("name", ["hybrid-7b", "ssm-heavy", "ssm-light", "transformer-7b"])
def test_shipped_models_are_exact_and_monotone_up_to_a_million_tokens(name: str):
    loaded = load_model(name)
    assert isinstance(loaded, PaperModel)
    counts = (loaded.attention_layers, loaded.ssm_layers, loaded.mlp_layers)
    shape = naive.Shape(*counts, loaded.model_dimension, loaded.state_dimension)
    lengths = [*range(0, 1000), *range(1000, 10**6, 997), 10**6 - 1, 10**6]
    found = [flops(loaded.shape, float(length)) for length in lengths]
    assert found == [float(shape.flops(length)) for length in lengths]
    assert (np.diff(found) > 0).all()


def test_the_papers_model():
    # "One state = 26.8 MB, KV = 65.5 KB per token", about 409 tokens of KV
    paper = load_model("hybrid-7b")
    assert paper.kv_bytes == 65_536
    assert paper.state_bytes == 26_787_840
    assert paper.accounting == "paper"
    assert round(paper.state_bytes / paper.kv_bytes) == 409


def test_flops_by_hand():
    # D = 2, N = 3, L = 5: 8*5*4 + 4*25*2, 12*5*4 + 16*5*2*3 + 10*5*2, 16*5*4
    assert model(naive.Shape(1, 1, 1, 2, 3)).flops_by_layer(5) == {
        "attention": 360,
        "ssm": 820,
        "mlp": 320,
    }


# --- files ---

GOOD = {
    "title": '"mine"',
    "source": '"me"',
    "accounting": '"paper"',
    "attention_layers": "2",
    "ssm_layers": "3",
    "mlp_layers": "4",
    "model_dimension": "8",
    "state_dimension": "2",
}


def write(folder: Path, **changes: str | None) -> Path:
    path = folder / "mine.toml"
    keys = {key: value for key, value in (GOOD | changes).items() if value is not None}
    path.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
    return path


@pytest.mark.parametrize("as_text", [False, True])
def test_a_model_of_ones_own(tmp_path: Path, as_text: bool):
    path = write(tmp_path)
    mine = load_model(str(path) if as_text else path)
    assert mine.name == "mine"
    assert mine.kv_bytes == 2 * 4 * 8
    assert mine.state_bytes == 3 * (2 * 8 * 2 + (2 * 8 + 2 * 2) * 4 * 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ssm_layers": None}, "no key 'ssm_layers'; a model needs it"),
        ({"ssm_layer": "3"}, "unknown key 'ssm_layer'; did you mean 'ssm_layers'?"),
        ({"ssm_layers": "-1"}, "ssm_layers = -1, expected a whole number from 0 to"),
        ({"ssm_layers": "1.5"}, "ssm_layers = 1.5, expected a whole number"),
        ({"ssm_layers": "true"}, "ssm_layers = True, expected a whole number"),
        ({"ssm_layers": '"3"'}, "ssm_layers = '3', expected a whole number"),
        ({"model_dimension": "0"}, "model_dimension = 0, expected a whole number from 1"),
        ({"model_dimension": "10000000000"}, "expected a whole number from 1 to 1048576"),
        ({"title": "1"}, "title = 1, expected text"),
        ({"accounting": '"guess"'}, "accounting = 'guess', allowed: paper, exact"),
        ({"attention_layers": "0", "ssm_layers": "0"}, "nothing to cache"),
        ({"title": '"open'}, "not TOML"),
    ],
)
def test_files_that_are_no_model(tmp_path: Path, changes: dict[str, str | None], said: str):
    path = write(tmp_path, **changes)
    with pytest.raises(UserError) as error:
        load_model(path)
    assert str(error.value).startswith(f"{path}:")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"title = '\xff'")
    with pytest.raises(UserError, match="not UTF-8 text"):
        load_model(path)


def test_unknown_name():
    with pytest.raises(UsageError, match="model 'hybrid': unknown; did you mean 'hybrid-7b'"):
        load_model("hybrid")
