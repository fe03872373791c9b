"""Where prompts are prefilled."""

from dataclasses import replace

import pytest

from controller.scheduling.prefill_choice import PrefillFigures, choose_prefill

SLOW_PREFILL = PrefillFigures(
    actor_tokens=[5000] * 4,
    distinct_tokens=5000,
    prefill_token_s=1e-2,
    apart_token_s=1e-3,
    kv_bytes_per_token=1000,
    bandwidth_bytes_per_s=1e9,
    decode_s=20.0,
)
"""Every actor would compute the same prompts, slowly, and the way is wide."""


def test_repeated_slow_prefill_over_a_wide_way_is_done_apart() -> None:
    plan = choose_prefill(SLOW_PREFILL, "auto", 0.7)
    assert plan.is_apart
    assert plan.num_tokens == 5000
    assert plan.apart_s == pytest.approx(5000 * 1e-3 + 5000 * 1e-6)
    assert plan.transfer_s == pytest.approx(5000 * 1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        {"bandwidth_bytes_per_s": 1e4},
        {"actor_tokens": [1250] * 4, "apart_token_s": 1e-2},
        {"prefill_token_s": 1e-6, "apart_token_s": 1e-6},
    ],
)
def test_a_narrow_way_nothing_repeated_or_fast_prefill_keeps_it_in_the_actors(changed: dict[str, object]) -> None:
    plan = choose_prefill(replace(SLOW_PREFILL, **changed), "auto", 0.7)
    assert not plan.is_apart
    assert plan.apart_s == plan.transfer_s == 0.0


@pytest.mark.parametrize("changed", [{"bandwidth_bytes_per_s": None}, {"kv_bytes_per_token": 0}])
def test_what_is_not_measured_is_not_trusted(changed: dict[str, object]) -> None:
    plan = choose_prefill(replace(SLOW_PREFILL, **changed), "auto", 0.7)
    assert not plan.is_apart
    assert "not measured" in plan.reason
    assert choose_prefill(replace(SLOW_PREFILL, **changed), "disaggregated", 0.7).is_apart


def test_it_can_be_forced_either_way() -> None:
    assert not choose_prefill(SLOW_PREFILL, "in_actor", 0.7).is_apart
    narrow = replace(SLOW_PREFILL, bandwidth_bytes_per_s=1.0)
    forced = choose_prefill(narrow, "disaggregated", 0.7)
    assert forced.is_apart
    assert "forced" in forced.reason


def test_without_the_function_nothing_is_forced() -> None:
    plan = choose_prefill(replace(SLOW_PREFILL, is_available=False), "disaggregated", 0.7)
    assert not plan.is_apart
    assert "no function" in plan.reason


def test_lambda_decides_between_faster_and_cheaper() -> None:
    """Apart it is faster, but on a learner of many GPUs dearer."""
    figures = replace(SLOW_PREFILL, apart_units=100.0, decode_s=1.0)
    assert choose_prefill(figures, "auto", 1.0).is_apart
    assert not choose_prefill(figures, "auto", 0.0).is_apart
