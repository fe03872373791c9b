"""The speed of a replica, learnt from what it did."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.decode_profile import DecodeObservation, DecodeProfile, fit, prefill_speed, remember

PRIOR = DecodeProfile(base_s=0.01, per_sequence_s=2e-4, per_context_token_s=2e-7, prefill_token_s=5e-5)
TRUE = replace(PRIOR, base_s=0.004, per_sequence_s=5e-4, per_context_token_s=3e-6)


def seen(num: float, context: float, speed: DecodeProfile = TRUE, steps: int = 20) -> DecodeObservation:
    return DecodeObservation(
        num_steps=steps, num_sequences=num, context_tokens=context, seconds=steps * speed.step_seconds(num, context)
    )


def test_without_observations_it_is_the_prior() -> None:
    assert fit([], PRIOR) == PRIOR
    assert fit([replace(seen(1, 1), seconds=0.0)], PRIOR) == PRIOR


def test_one_observation_scales_the_prior() -> None:
    slow = replace(PRIOR, base_s=0.1, per_sequence_s=2e-3, per_context_token_s=2e-6)
    found = fit([seen(8, 1000, slow)], PRIOR)
    assert found.base_s == pytest.approx(slow.base_s)
    assert found.per_sequence_s == pytest.approx(slow.per_sequence_s)
    assert found.per_context_token_s == pytest.approx(slow.per_context_token_s)
    assert found.prefill_token_s == PRIOR.prefill_token_s


def test_many_different_loads_give_the_true_speed() -> None:
    loads = [(n, n * per) for n in (1, 4, 16, 64) for per in (50, 400, 2000) for _ in range(30)]
    found = fit([seen(*load) for load in loads], PRIOR)
    for load in loads:
        assert found.step_seconds(*load) == pytest.approx(TRUE.step_seconds(*load), rel=0.02)
    assert found.per_context_token_s == pytest.approx(TRUE.per_context_token_s, rel=0.05)


def test_loads_that_say_the_same_still_predict_themselves() -> None:
    """Context grows with sequences: three coefficients cannot be told apart, their sum can."""
    loads = [(n, 100.0 * n) for n in (2, 4, 8, 16) for _ in range(10)]
    found = fit([seen(*load) for load in loads], PRIOR)
    for load in loads:
        assert found.step_seconds(*load) == pytest.approx(TRUE.step_seconds(*load), rel=0.05)


@given(
    st.lists(
        st.tuples(st.floats(0, 300), st.floats(0, 1e6), st.floats(1e-5, 10), st.integers(1, 200)),
        min_size=1,
        max_size=12,
    )
)
def test_no_coefficient_is_negative_whatever_was_seen(loads: list[tuple[float, float, float, int]]) -> None:
    found = fit(
        [
            DecodeObservation(num_steps=steps, num_sequences=num, context_tokens=context, seconds=seconds)
            for num, context, seconds, steps in loads
        ],
        PRIOR,
    )
    speed = [found.base_s, found.per_sequence_s, found.per_context_token_s]
    assert all(np.isfinite(speed))
    assert min(speed) >= 0
    assert found.step_seconds(10, 1000) > 0


def test_a_replica_that_slows_down_with_less_load_has_no_negative_share() -> None:
    found = fit([seen(1, 1, replace(TRUE, base_s=0.9)), *[seen(64, 6400, replace(TRUE, base_s=0.001))] * 5], PRIOR)
    assert found.per_sequence_s >= 0
    assert found.per_context_token_s >= 0


def test_old_observations_are_forgotten() -> None:
    slow = [seen(8, 800, replace(TRUE, base_s=0.5))] * 4
    known: tuple[DecodeObservation, ...] = tuple(slow)
    for _ in range(60):
        known = remember(known, [seen(8, 800)])
    assert [one.weight for one in known[-3:]] == pytest.approx([0.81, 0.9, 1.0])
    assert all(one.weight >= 1e-3 for one in known)
    assert fit(known, PRIOR).step_seconds(8, 800) == pytest.approx(TRUE.step_seconds(8, 800), rel=0.02)


def test_nothing_new_forgets_nothing() -> None:
    known = (seen(8, 800),)
    assert remember(known, []) == known


def test_the_newest_are_kept() -> None:
    known = remember([seen(1, 1)] * 10, [seen(2, 2)] * 10, most=12)
    assert [one.num_sequences for one in known] == [1, 1, *[2] * 10]


def test_prefill_is_measured_by_itself() -> None:
    assert prefill_speed(1000, 2.0, PRIOR).prefill_token_s == 0.002
    assert prefill_speed(0, 0.0, PRIOR) == PRIOR
