"""The fit of prefill times finds what made the times, and never a negative term."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marconi_sim.latency.fit import PrefillTime, fit_prefill_time, relative_errors


def measurements(truth: PrefillTime, noise: float = 0.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    flops = 10.0 ** rng.uniform(8, 12, 60)
    restored = np.where(rng.random(60) < 0.5, 0.0, 10.0 ** rng.uniform(5, 8, 60))
    seconds = truth.seconds_of(flops, restored) * np.exp(noise * rng.standard_normal(60))
    return flops, restored, truth.per_restored_byte * restored, seconds


@pytest.mark.parametrize(
    "truth",
    [
        PrefillTime(2e-3, 4e-11, 3e-10),
        PrefillTime(0.0, 4e-11, 3e-10),
        PrefillTime(2e-3, 4e-11, 0.0),
        PrefillTime(0.5, 0.0, 0.0),
    ],
)
def test_exact_times_give_their_own_terms(truth: PrefillTime):
    assert fit_prefill_time(*measurements(truth)) == pytest.approx(truth, rel=1e-6, abs=1e-15)


@given(st.integers(0, 100))
def test_noise_gives_no_negative_term_and_an_error_of_its_size(seed: int):
    flops, restored, restore, seconds = measurements(PrefillTime(1e-3, 4e-11, 1e-12), 0.1, seed)
    fitted = fit_prefill_time(flops, restored, restore, seconds)
    assert min(fitted) >= 0
    errors = relative_errors(fitted.seconds_of(flops, restored), seconds)
    assert 0.03 < np.median(errors) < 0.12


def test_short_prompts_count_like_long_ones():
    flops = np.array([1e9, 1e9, 1e12, 1e12])
    seconds = np.array(
        [0.2, 0.2, 10.0, 10.2]
    )  # a line through the long ones alone may miss the short ones
    fitted = fit_prefill_time(flops, np.zeros(4), np.zeros(4), seconds)
    assert relative_errors(fitted.seconds_of(flops, np.zeros(4)), seconds).max() < 0.02


def test_too_few_or_impossible_times_are_refused():
    with pytest.raises(ValueError, match="3 times"):
        fit_prefill_time(*[np.ones(3)] * 4)
    with pytest.raises(ValueError, match="all above 0"):
        fit_prefill_time(np.ones(4), np.ones(4), np.ones(4), np.array([1.0, 1.0, 1.0, 0.0]))
