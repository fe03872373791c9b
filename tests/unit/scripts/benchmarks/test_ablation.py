"""What is made of measured steps; and, slow, that steps can be measured at all."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmarks import ablation
from scripts.benchmarks.ablation_cases import CASES
from scripts.benchmarks.ablation_run import StepCost
from scripts.benchmarks.ablation_trace import Workload, drawn_trace
from shared.contracts.rollout import DecodeStretch, RolloutOutputs

BY_NAME = {case.name: case for case in CASES}
TINY = Workload(num_rows=4, group_size=2, prompt_tokens=8, max_tokens=40, median_tokens=20)


def cost_of(*actor_s: float, outputs: tuple[RolloutOutputs, ...] = ()) -> StepCost:
    return StepCost(
        step_s=max(actor_s), actor_s=actor_s, num_tokens=100, num_migrated=0, prefill_tokens=10, rollouts=outputs
    )


def test_a_static_fleet_is_paid_to_the_end_and_others_until_they_are_free() -> None:
    costs = [cost_of(2.0, 5.0), cost_of(4.0, 3.0)]
    fleet, freed = (ablation.summary("real", BY_NAME[name], 2, costs) for name in ("verl_like", "raw"))
    assert (fleet["step_s"], fleet["step_s_min"], fleet["step_s_max"]) == (4.5, 4.0, 5.0)
    assert (fleet["replica_s"], fleet["replica_s_min"], fleet["replica_s_max"]) == (9.0, 8.0, 10.0)
    assert (freed["replica_s"], freed["replica_s_min"], freed["replica_s_max"]) == (7.0, 7.0, 7.0)


def test_the_speed_is_learnt_from_what_was_decoded_and_prefilled() -> None:
    stretches = tuple(
        DecodeStretch(num_steps=10, num_sequences=running, context_tokens=50 * running, seconds=10 * 0.02 * running)
        for running in (1, 2, 4, 8)
    )
    outputs = RolloutOutputs(num_completions=1, num_tokens=1, decode=stretches, prefill_tokens=100, prefill_s=5.0)
    profile = ablation.learnt([cost_of(1.0, outputs=(outputs,))], ablation.PRIOR)
    assert profile.prefill_token_s == pytest.approx(0.05)
    assert profile.step_seconds(4, 200) == pytest.approx(0.08, rel=0.1)


def test_without_any_decoding_there_is_no_profile() -> None:
    with pytest.raises(SystemExit, match="no decoding"):
        ablation.learnt([cost_of(1.0)], ablation.PRIOR)


def test_a_recorded_trace_takes_the_place_of_drawn_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(drawn_trace(TINY, 3, seed=5)))
    asked = argparse.Namespace(trace=trace, seeds=2)
    steps = ablation.steps_of(asked, TINY)
    assert len(steps) == 2
    assert len({row.row_uid for step in steps for row in step.rows}) == 2 * TINY.num_rows


def test_a_trace_of_one_epoch_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(drawn_trace(TINY, 1, seed=5)))
    with pytest.raises(SystemExit, match="an epoch before"):
        ablation.steps_of(argparse.Namespace(trace=trace, seeds=2), TINY)


@pytest.mark.slow
def test_a_step_is_measured_for_real_and_simulated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "REAL", TINY)
    asked = argparse.Namespace(trace=None, seeds=1, actors=[2])
    cases = [BY_NAME["dedup"], BY_NAME["migrate"]]
    runs, profile = asyncio.run(ablation.measure_real(asked, cases))
    assert [run.case.name for run in runs] == ["dedup", "migrate"]
    assert profile != ablation.PRIOR
    case = ablation.real_case(runs, 2, BY_NAME["dedup"])
    assert case["step_s"] > 0
    assert case["simulated_step_s"] > 0


def test_a_technique_that_does_not_pay_is_said_not_to() -> None:
    def case(kind: str, name: str, step_s: float, replica_s: float) -> dict[str, Any]:
        return {"name": f"{kind}/{name}", "case": name, "step_s": step_s, "replica_s": replica_s}

    cases = [
        case("real-1", "raw", 10.0, 20.0),
        case("simulated-8", "raw", 10.0, 20.0),
        case("real-1", "dedup", 9.0, 20.0),
        case("simulated-8", "dedup", 10.0, 22.0),
        case("real-1", "all", 9.0, 20.0),
    ]
    assert ablation.notes(cases) == [
        "real-1/dedup against raw: time -10.0%, cost +0.0%",
        "simulated-8/dedup against raw: time +0.0%, cost +10.0%: does not pay here",
    ]
