"""What scheduling came to: errors of what was expected, and what each technique saved."""

from dataclasses import replace
from typing import Any

import pytest

from controller.platforms.base import ReplicaLife
from controller.runs.measuring import measure_round
from controller.runs.observed import ObservedRound
from controller.runs.plan_records import HoldingRecord
from controller.runs.planning import Planned
from controller.runs.rounds import SampledRound
from controller.runs.schedule_metrics import rank_correlation, schedule_metrics
from controller.scheduling.lengths import LengthRecord
from shared.codec.completion_facts import CompletionFacts
from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId, Stay
from shared.contracts.ids import InstanceId
from shared.contracts.rollout import RolloutOutputs
from shared.contracts.stage import Purpose, Stage
from tests.fakes.planned import planned
from tests.fakes.world import RUN


def life(started_at: float | None, **fields: Any) -> ReplicaLife:
    return ReplicaLife(
        instance=InstanceId("a"),
        function="rollout",
        stages=(Stage.ROLLOUT,),
        revision="r",
        num_cpus=1.0,
        num_gpus=0,
        scheduled_at=started_at or 0.0,
        started_at=started_at,
        **fields,
    )


def stay(instance: str, num_tokens: int) -> Stay:
    return Stay(shard=0, instance=instance, started_at=0.0, first_token_at=0.0, ended_at=1.0, num_tokens=num_tokens)


def completion(row: int, sample: int, num_tokens: int, *stays: Stay) -> CompletionFacts:
    return CompletionFacts(
        id=SampleId(f"train-{row:06d}.e0", sample),
        prompt_num_tokens=row + 1,
        num_tokens=num_tokens,
        finish_reason="stop",
        instance="a",
        started_at=0.0,
        ended_at=1.0,
        stays=stays,
    )


LENGTHS = {0: (2, 2), 1: (20, 20), 2: (2, 2), 3: (20, 20)}
KNOWN = {
    f"train-{row:06d}": (LengthRecord(row_uid=f"train-{row:06d}", epoch=0, lengths=two),)
    for row, two in LENGTHS.items()
}


def observed(
    made: Planned | None = None,
    *,
    completions: tuple[CompletionFacts, ...] | None = None,
    lives: tuple[ReplicaLife, ...] = (),
    rollouts: tuple[RolloutOutputs, ...] = (),
) -> ObservedRound:
    """A round from 100 to 110 seconds whose groups are as long as ``LENGTHS`` says."""
    as_known = tuple(completion(row, sample, two[sample]) for row, two in LENGTHS.items() for sample in (0, 1))
    sampled = SampledRound(
        batch=BatchKey(run=RUN, purpose=Purpose.TRAIN, step=0),
        planned=made or planned(history=KNOWN),
        prefilled=None,
        rollouts=rollouts,
        began_at=99.0,
        asked_at=100.0,
        sampled_at=110.0,
    )
    return ObservedRound(
        sampled=sampled, completions=as_known if completions is None else completions, calls=(), lives=lives
    )


def metrics_of(*rounds: ObservedRound, holding: tuple[HoldingRecord, ...] = ()) -> dict[str, float]:
    return schedule_metrics(rounds, [measure_round(one) for one in rounds], holding)


# --- expected and real --------------------------------------------------------------------------------------------


def test_rounds_of_a_step_are_compared_together() -> None:
    one = observed(lives=(life(100.0),))
    metrics = metrics_of(one, one)
    expected = one.sampled.planned.plan.expected
    assert expected is not None
    assert metrics["schedule/measured_time"] == 20.0
    assert metrics["schedule/expected_time"] == 2 * expected.time_s
    assert metrics["schedule/time_error"] == pytest.approx((2 * expected.time_s - 20.0) / 20.0)
    assert metrics["schedule/measured_cost"] == 20.0
    assert metrics["schedule/num_actors"] == one.sampled.planned.plan.num_actors


# --- lengths ------------------------------------------------------------------------------------------------------


def test_lengths_that_were_known_have_no_error() -> None:
    metrics = metrics_of(observed())
    assert metrics["schedule/lengths/mean"] == 11.0
    assert metrics["schedule/lengths/mean_error"] == 0.0
    assert metrics["schedule/lengths/share_known"] == 1.0
    assert metrics["schedule/lengths/rank_correlation"] == pytest.approx(1.0)
    assert "schedule/lengths/per_answer_token" not in metrics


def test_lengths_that_were_not_known_have_one_and_no_order() -> None:
    metrics = metrics_of(observed(planned()))
    assert metrics["schedule/lengths/mean_error"] == pytest.approx(9.0)
    assert metrics["schedule/lengths/share_known"] == 0.0
    assert "schedule/lengths/rank_correlation" not in metrics


def test_answers_are_measured_against_what_they_stood_for() -> None:
    answers = {"train-000000.e0": 1, "train-000001.e0": 4}
    metrics = metrics_of(observed(planned(answers=answers)))
    assert metrics["schedule/lengths/per_answer_token"] == pytest.approx((2 + 20) / 5)


@pytest.mark.parametrize(
    ("expected", "real", "correlation"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [30, 20, 10], -1.0),
        ([1, 2, 2, 3], [1, 2, 2, 9], 1.0),
        ([5, 5], [1, 2], None),
        ([1, 2], [7, 7], None),
        ([], [], None),
    ],
)
def test_only_the_order_counts(expected: list[float], real: list[float], correlation: float | None) -> None:
    found = rank_correlation(expected, real)
    assert found == (None if correlation is None else pytest.approx(correlation))


# --- techniques ---------------------------------------------------------------------------------------------------


def test_an_assignment_by_length_saves_what_the_order_of_the_batch_wastes() -> None:
    made = planned(history=KNOWN, config={"rollout__num_actors": 2})
    metrics = metrics_of(observed(made))
    # In order each of the two actors has a short and a long group; sorted, one has both short ones.
    assert metrics["schedule/assignment/predicted_replica_saved_s"] > 0
    in_order = planned(history=KNOWN, config={"rollout__num_actors": 2, "schedule__assignment": "in_order"})
    nothing = metrics_of(observed(in_order))
    assert nothing["schedule/assignment/predicted_replica_saved_s"] == 0.0
    assert nothing["schedule/assignment/predicted_time_saved_s"] == 0.0


def test_scaling_is_compared_with_the_most_actors() -> None:
    made = planned(history=KNOWN)
    table = made.plan.candidates
    chosen = next(one for one in table if one.num_actors == made.plan.num_actors)
    metrics = metrics_of(observed(made))
    assert metrics["schedule/scaling/predicted_cost_saved"] == pytest.approx(table[-1].cost - chosen.cost)
    assert metrics["schedule/scaling/predicted_time_saved_s"] == pytest.approx(table[-1].time_s - chosen.time_s)


def test_prefill_that_was_done_once_for_a_group_is_saved() -> None:
    # Prompts of 1, 2, 3 and 4 tokens, two samples each: 20 tokens one by one.
    rollouts = (RolloutOutputs(num_completions=8, num_tokens=88, prefill_tokens=8, reused_tokens=12),)
    metrics = metrics_of(observed(rollouts=rollouts))
    assert metrics["schedule/dedup/prefill_tokens"] == 8.0
    assert metrics["schedule/dedup/prefill_tokens_saved"] == 12.0
    assert metrics["schedule/dedup/saved_share"] == pytest.approx(0.6)
    assert "schedule/dedup/saved_share" not in metrics_of(observed())


def test_what_moved_is_counted_with_the_tokens_that_it_had() -> None:
    completions = (
        completion(0, 0, 5, stay("a", 5)),
        completion(0, 1, 9, stay("a", 3), stay("a", 9)),
        completion(1, 0, 9, stay("a", 3), stay("b", 9)),
        completion(1, 1, 9, stay("a", 2), stay("b", 6), stay("c", 9)),
    )
    metrics = metrics_of(observed(completions=completions))
    assert metrics["schedule/migration/num_sequences"] == 2.0
    assert metrics["schedule/migration/num_tokens"] == 3.0 + 2.0 + 6.0


def test_a_replica_that_leaves_before_the_last_completion_saves_the_rest() -> None:
    lives = (
        life(90.0, draining_at=103.0, ended_at=104.0),
        life(90.0, draining_at=108.0, ended_at=112.0),
        life(90.0, ended_at=105.0),
        life(90.0, draining_at=98.0, ended_at=99.0),
        life(90.0),
    )
    metrics = metrics_of(observed(lives=lives))
    assert metrics["schedule/migration/num_actors_released_early"] == 1.0
    assert metrics["schedule/migration/replica_saved_s"] == 6.0


def test_what_actors_found_of_prefix_kv_is_summed() -> None:
    one = RolloutOutputs(
        num_completions=1,
        num_tokens=1,
        num_prefix_hits=1,
        num_prefix_misses=2,
        num_prefix_late=3,
        num_prefix_damaged=4,
        prefix_bytes=5,
        prefix_s=0.5,
    )
    metrics = metrics_of(observed(rollouts=(one, one)))
    assert metrics["schedule/prefill/disaggregated"] == 0.0
    assert [metrics[f"schedule/prefill/{name}"] for name in ("hits", "misses", "late", "damaged")] == [2, 4, 6, 8]
    assert (metrics["schedule/prefill/fetched_bytes"], metrics["schedule/prefill/fetch_s"]) == (10.0, 1.0)


def test_what_was_decided_about_replicas_is_by_stage() -> None:
    record = HoldingRecord(
        stage=Stage.REWARD, decision="hold", reason="", idle_s=1.0, predicted_saved_s=2.0, prewarm_at=None
    )
    metrics = metrics_of(observed(), holding=(record, replace(record, stage=Stage.LEARNER, decision="release")))
    assert metrics["schedule/holding/reward/held"] == 1.0
    assert metrics["schedule/holding/reward/predicted_saved_s"] == 2.0
    assert metrics["schedule/holding/learner/held"] == 0.0


def test_a_step_without_any_completion_is_measured_all_the_same() -> None:
    metrics = metrics_of(observed(completions=()))
    assert "schedule/lengths/mean" not in metrics
    assert metrics["schedule/assignment/predicted_time_saved_s"] == 0.0
