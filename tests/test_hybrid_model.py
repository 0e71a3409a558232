"""The own hybrid model: a prefill from a restored prefix is the prefill from nothing, at any position, in any shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marconi_sim.base.errors import UsageError

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from restored import check_exactness  # noqa: E402

from marconi_sim.adapters.backend import (  # noqa: E402
    Footprint,
    footprint,
    join_kv,
    nbytes,
    slice_kv,
)
from marconi_sim.adapters.exactness import (  # noqa: E402
    EXACT,
    largest_error,
    strict_float64,
)
from marconi_sim.adapters.hybrid_config import PRESETS, HybridConfig, preset  # noqa: E402
from marconi_sim.adapters.hybrid_model import (  # noqa: E402
    HybridModel,
    attend_at_once,
    attend_in_blocks,
)
from marconi_sim.adapters.scan import scan  # noqa: E402

TINY = preset("tiny")


def draw(count: int, vocabulary: int = TINY.vocabulary, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocabulary, (count,), generator=generator)


@pytest.fixture(scope="module")
def model() -> HybridModel:
    return HybridModel(TINY)


def assert_owned(tensors, *others) -> None:
    """No tensor keeps more memory alive than it shows, and none shares it with another."""
    tensors = list(tensors)
    for tensor in tensors:
        assert tensor.is_contiguous()
        assert tensor.untyped_storage().nbytes() == nbytes([tensor])
    pointers = [tensor.untyped_storage().data_ptr() for tensor in (*tensors, *others)]
    assert len(set(pointers)) == len(pointers)


def test_a_scan_is_the_recurrence_taken_token_by_token():
    heads, width, groups, N, tokens = 4, 3, 2, 5, 37
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x, dt, A = normal(tokens, heads, width), normal(tokens, heads).exp(), -normal(heads).exp()
    B, C = normal(tokens, groups, N), normal(tokens, groups, N)
    first = state = normal(heads, width, N)
    ys, states = [], []
    for t in range(tokens):
        b, c = (each[t].repeat_interleave(heads // groups, dim=0) for each in (B, C))
        decay = (A * dt[t]).exp()[:, None, None]
        state = decay * state + (dt[t][:, None] * x[t])[..., None] * b[:, None]
        ys.append((state * c[:, None]).sum(-1))
        states.append(state)
    for chunk in (1, 2, 8, 37, 64):  # 1 and 2: more chunks than are taken at once
        y, found = scan(x, dt, A, B, C, first, range(1, tokens + 1), chunk)
        torch.testing.assert_close(y, torch.stack(ys), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(torch.stack(found), torch.stack(states), rtol=1e-12, atol=1e-12)


def test_a_prefix_ends_anywhere(model):
    tokens = draw(300)
    cuts = [1, 2, 3, 7, 8, 9, 64, 127, 128, 129, 200, 256, 299]
    full = model.prefill(tokens, 0, None, None, cuts)
    assert full.last_logits.abs().max() > 3  # wide weights: an error would show
    for cut in cuts:
        later = [cut_ for cut_ in cuts if cut_ > cut]
        kv = slice_kv(full.kv, 0, cut)
        rest = model.prefill(tokens[cut:], cut, kv, full.states[cut], later)
        assert largest_error(rest.last_logits, full.last_logits) < EXACT
        joined = join_kv([kv, rest.kv])
        for ours, expected in zip(joined, full.kv, strict=True):
            assert largest_error(ours, expected) < EXACT
        for position in later:
            for ours, expected in zip(rest.states[position], full.states[position], strict=True):
                assert largest_error(ours, expected) < EXACT


@pytest.mark.parametrize(("new", "tokens"), [(1, 1), (1, 40), (40, 40), (300, 300), (300, 555)])
def test_both_ways_to_attend_are_causal_attention(new, tokens):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, count, 8, generator=generator, dtype=torch.float64)
        for heads, count in ((4, new), (2, tokens), (2, tokens))
    )
    scores = torch.einsum("bkgqd,bksd->bkgqs", q.view(1, 2, 2, new, 8), k) / 8**0.5
    ahead = torch.arange(tokens)[None] > torch.arange(tokens - new, tokens)[:, None]
    weights = scores.masked_fill(ahead, -torch.inf).softmax(-1)
    expected = torch.einsum("bkgqs,bksd->bkgqd", weights, v).reshape(1, 4, new, 8)
    for attend in (attend_at_once, attend_in_blocks):
        torch.testing.assert_close(attend(q, k, v), expected, rtol=1e-12, atol=1e-12)


def test_wrong_states_are_noticed(model):
    for position, pieces in ((2, ()), (8, (3,)), (77, (1, 64)), (128, (5, 64)), (250, (100,))):
        found = check_exactness(model, draw(300, seed=position), position, pieces)
        assert found.exact, (position, found)
        assert found.error < 1e-12
        assert min(found[1:]) > 1


def test_a_check_needs_room_around_the_position(model):
    for position in (0, 1, 20):
        with pytest.raises(ValueError, match="expected 2 to 19"):
            check_exactness(model, draw(20), position)


shapes = st.builds(
    HybridConfig,
    pattern=st.text("MA", min_size=1, max_size=4),
    hidden=st.just(16),
    attention_heads=st.just(4),
    kv_heads=st.sampled_from([1, 2, 4]),
    head_dim=st.sampled_from([4, 8]),
    ssm_heads=st.just(4),
    ssm_head_dim=st.sampled_from([4, 8]),
    ssm_groups=st.sampled_from([1, 2, 4]),
    state_dim=st.integers(1, 6),
    ffn=st.integers(1, 20),
    vocabulary=st.just(31),
    conv_kernel=st.integers(2, 5),
    chunk=st.integers(1, 12),
    dtype=st.just("float64"),
    seed=st.integers(0, 9),
    weight_scale=st.just(3.0),
)


@settings(max_examples=60, deadline=None)
@given(shapes, st.lists(st.integers(1, 39), max_size=6, unique=True), st.integers(0, 99))
def test_pieces_of_any_lengths_and_shapes(shape, cuts, seed):
    model = HybridModel(shape)
    tokens = draw(40, shape.vocabulary, seed)
    full = model.prefill(tokens, 0, None, None, [*sorted(cuts), 40])
    start, kv, state = 0, None, None
    for end in [*sorted(cuts), 40]:
        piece = model.prefill(tokens[start:end], start, kv, state, (end,))
        kv = piece.kv if kv is None else join_kv([kv, piece.kv])
        start, state = end, piece.states[end]
        for ours, expected in zip(state, full.states[end], strict=True):
            assert largest_error(ours, expected) < EXACT
        assert_owned([piece.last_logits, *piece.kv, *state])
    assert largest_error(piece.last_logits, full.last_logits) < EXACT
    assert_owned([full.last_logits, *full.kv, *(t for each in full.states.values() for t in each)])


def test_nothing_passed_in_changes_or_is_kept(model):
    tokens = draw(60)
    full = model.prefill(tokens, 0, None, None, (20,))
    kv, state = slice_kv(full.kv, 0, 20), full.states[20]
    passed = [tokens, *kv, *state]
    before = [tensor.clone() for tensor in passed]
    rest = model.prefill(tokens[20:], 20, kv, state, (21, 40, 60))
    assert all(torch.equal(a, b) for a, b in zip(passed, before, strict=True))
    states = [tensor for each in rest.states.values() for tensor in each]
    assert_owned([rest.last_logits, *rest.kv, *states], *passed)


def test_the_same_logits_as_a_bamba_of_transformers(model):
    transformers = pytest.importorskip("transformers")
    tokens = draw(101)
    config = transformers.AutoConfig.for_model(**model.config)
    bamba = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64)
    bamba.load_state_dict(model._weights)  # strict: the same names and shapes
    positions = torch.arange(101)[None]
    with torch.no_grad():
        bamba(
            input_ids=tokens[None]
        )  # what it imports on first use must not see the block's dtypes
    # Made in float32: the angles must be those of float64.
    rotary = bamba.model.rotary_emb
    width = 2 * len(rotary.inv_freq)
    rotary.inv_freq = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    with strict_float64(), torch.no_grad():
        expected = bamba.eval()(input_ids=tokens[None], position_ids=positions).logits[0, -1]
    ours = model.prefill(tokens, 0, None, None, ()).last_logits
    assert largest_error(ours, expected) < 1e-12


@pytest.mark.parametrize(("dtype", "wide"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_dtypes_of_kv_and_states(dtype, wide):
    shape = replace(TINY, dtype=dtype, weight_scale=1.0)
    model = HybridModel(shape)
    full = model.prefill(draw(90), 0, None, None, (50,))
    assert {str(tensor.dtype) for tensor in full.kv} == {f"torch.{dtype}"}
    assert [str(t.dtype) for t in full.states[50][:2]] == [f"torch.{dtype}", "torch.float32"]
    conv, recurrent = shape.conv_channels * 3 * wide, shape.inner * shape.state_dim * 4
    assert footprint(model) == Footprint(1 * 2 * 2 * 8 * wide, 3 * (conv + recurrent))
    assert model.storage == {
        "kv_dtype": dtype, "conv_dtype": dtype, "state_dtype": "float32", "conv_columns": "kernel-1",
    }  # fmt: skip
    rest = model.prefill(draw(90)[50:], 50, slice_kv(full.kv, 0, 50), full.states[50], ())
    tolerance = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    assert largest_error(rest.last_logits, full.last_logits) < tolerance


def test_activations_keep_their_size_with_ordinary_weights():
    model = HybridModel(PRESETS["small"])
    logits = model.prefill(draw(100, 1024), 0, None, None, ()).last_logits
    assert 0.5 < logits.std() < 2


def test_seeds_give_weights():
    same, other = (HybridModel(replace(TINY, seed=seed)) for seed in (0, 1))
    logits = [
        m.prefill(draw(9), 0, None, None, ()).last_logits for m in (HybridModel(TINY), same, other)
    ]
    assert torch.equal(logits[0], logits[1])
    assert largest_error(logits[0], logits[2]) > 1


def test_presets():
    assert 6.0e6 < preset("small").parameters - 2 * 256 * 1024 < 6.5e6
    assert preset("bamba-9b").parameters == pytest.approx(9.78e9, rel=1e-3)
    with pytest.raises(UsageError, match="shape 'smal': unknown; did you mean 'small'"):
        preset("smal")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pattern": "MXA"}, "pattern = 'MXA', expected a letter per layer"),
        ({"pattern": ""}, "pattern = ''"),
        ({"hidden": 0}, "hidden = 0, expected 1 or more"),
        ({"dtype": "float8"}, "dtype = 'float8'; did you mean"),
        ({"conv_kernel": 1}, "conv_kernel = 1, expected 2 or more"),
        ({"kv_heads": 3}, "attention_heads = 4, expected a multiple of kv_heads = 3"),
        ({"head_dim": 6}, "head_dim = 6, expected a multiple of 4"),
        ({"ssm_groups": 3}, "ssm_heads = 4, expected a multiple of ssm_groups = 3"),
        ({"ssm_head_dim": 9}, "ssm_heads x ssm_head_dim = 36, expected a multiple of hidden = 32"),
    ],
)
def test_impossible_shapes_are_refused(change, message):
    with pytest.raises(UsageError) as caught:
        replace(TINY, **change)
    assert message in str(caught.value)


def test_contradictions_are_refused(model):
    tokens = draw(10)
    full = model.prefill(tokens, 0, None, None, (5,))
    kv, state = slice_kv(full.kv, 0, 5), full.states[5]
    for arguments, message in (
        ((tokens[:0], 0, None, None, ()), "tokens"),
        ((tokens[None], 0, None, None, ()), "tokens"),
        ((tokens.int(), 0, None, None, ()), "tokens"),
        ((tokens, 5, kv, None, ()), "start = 5: a prefix needs"),
        ((tokens, 0, kv, state, ()), "start = 0: a prefix needs"),
        ((tokens, 5, full.kv, state, ()), r"kv: of \[10\] tokens, expected 5"),
        (
            (tokens[5:], 5, kv, state, (5,)),
            r"cuts: \[5\], expected ascending positions in \(5, 10\]",
        ),
        ((tokens[5:], 5, kv, state, (11,)), "cuts"),
        ((tokens[5:], 5, kv, state, (8, 7)), "cuts"),
        ((tokens[5:], 5, kv, state, (8, 8)), "cuts"),
    ):
        with pytest.raises(ValueError, match=message):
            model.prefill(*arguments)


def test_unknown_devices_are_refused():
    for name, message in (
        ("gpu0", "device 'gpu0': unknown, expected cpu, cuda or cuda:N"),
        ("meta", "device 'meta': not supported"),
        ("cuda:99", "device 'cuda:99': torch"),
    ):
        with pytest.raises(UsageError) as caught:
            HybridModel(TINY, device=name)
        assert message in str(caught.value)
