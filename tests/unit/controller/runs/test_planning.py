"""From what is known to a plan."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.platforms.base import PlatformFigures
from controller.runs.past_steps import PastSteps, read_past
from controller.runs.planning import (
    num_ready,
    other_parts,
    plan_round,
    platform_figures,
    prompt_groups,
    with_earlier_runs,
)
from controller.runs.profiles import KnownSpeed
from controller.runs.stage_figures import StageFigures
from controller.scheduling.lengths import LengthRecord
from controller.scheduling.observations import Resources
from controller.scheduling.plan import PRIOR
from shared.contracts.stage import Stage
from shared.store.records import StepRecords
from tests.fakes.planned import CLUSTER, ROLLOUT, planned, prompts_of_epoch
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, config_of, make_world

FIGURES = StageFigures(cold_start_s=2.0, drain_s=3.0, load_s=4.0, reload_s=1.0, units=2.0)


def record(row: int, epoch: int, *lengths: int) -> LengthRecord:
    return LengthRecord(row_uid=f"train-{row:06d}", epoch=epoch, lengths=lengths)


def history(*records: LengthRecord) -> dict[str, tuple[LengthRecord, ...]]:
    by_row: dict[str, tuple[LengthRecord, ...]] = {}
    for one in records:
        by_row[one.row_uid] = (*by_row.get(one.row_uid, ()), one)
    return by_row


def estimated(**fields: Any) -> list[tuple[str, tuple[float, ...]]]:
    """What is expected of four rows, of groups of two and at most 20 tokens."""
    whole: dict[str, Any] = {"history": {}, "answers": {}, "past": PastSteps(), "window": 1}
    groups = prompt_groups(prompts_of_epoch(4, epoch=1), config=config_of(), **{**whole, **fields})
    return [(group.estimate.source, group.estimate.lengths) for group in groups]


def test_before_anything_is_known_the_most_is_expected() -> None:
    assert estimated() == [("default", (20.0, 20.0))] * 4


def test_a_row_is_expected_to_be_as_in_its_last_epoch_and_unknown_ones_as_the_others() -> None:
    found = estimated(history=history(record(0, 0, 3, 5), record(2, 0, 9, 11)))
    assert found == [
        ("history", (3.0, 5.0)),
        ("default", (7.0, 7.0)),
        ("history", (9.0, 11.0)),
        ("default", (7.0, 7.0)),
    ]


def test_a_wider_window_averages_epochs() -> None:
    seen = history(record(0, 0, 4, 4), record(0, 1, 10, 10))
    assert estimated(history=seen)[0] == ("history", (10.0, 10.0))
    assert estimated(history=seen, window=2)[0][1] == pytest.approx((8.0, 8.0))


def test_answers_stand_in_and_are_scaled_by_what_the_model_made_of_others() -> None:
    answers = {"train-000000.e1": 2, "train-000001.e1": 4}
    past = PastSteps(mean_tokens=6.0, per_answer_token=2.5)
    plain, scaled = estimated(answers=answers), estimated(answers=answers, past=past)
    assert plain[:2] == [("answer", (2.0, 2.0)), ("answer", (4.0, 4.0))]
    assert scaled[:2] == [("answer", (5.0, 5.0)), ("answer", (10.0, 10.0))]
    assert scaled[2:] == [("default", (6.0, 6.0))] * 2


def test_no_answer_is_expected_to_be_longer_than_allowed_or_empty() -> None:
    answers = {"train-000000.e1": 1000, "train-000001.e1": 1}
    found = estimated(answers=answers, past=PastSteps(per_answer_token=0.1))
    assert [lengths for _, lengths in found[:2]] == [(20.0, 20.0), (1.0, 1.0)]


def test_a_run_begins_with_the_lengths_of_earlier_ones_of_its_model() -> None:
    speed = KnownSpeed(threads=1, profile=PRIOR, mean_tokens=6.0, per_answer_token=2.5)
    assert with_earlier_runs(PastSteps(), speed) == PastSteps(mean_tokens=6.0, per_answer_token=2.5)
    own = PastSteps(mean_tokens=9.0)
    assert with_earlier_runs(own, speed) == own
    assert with_earlier_runs(PastSteps(), None) == PastSteps()
    assert estimated(past=PastSteps(mean_tokens=1000.0))[0] == ("default", (20.0, 20.0))


def test_what_the_platform_costs_reaches_the_plan() -> None:
    figures = platform_figures(PlatformFigures(num_near=3, round_trip_s=0.5), FIGURES, (ROLLOUT,), None)
    assert (figures.cold_start_s, figures.drain_s, figures.weight_load_s, figures.units_per_actor) == (2, 3, 4, 2)
    assert (figures.bandwidth_bytes_per_s, figures.round_trip_s, figures.has_prefill) == (None, 0.5, False)
    assert (figures.ability.shares_learner, figures.ability.places_near, figures.ability.num_near) == (False, True, 3)


def test_a_measured_bandwidth_counts_more_than_a_stated_one() -> None:
    speed = KnownSpeed(threads=1, profile=PRIOR, bandwidth_bytes_per_s=7.0, apart_token_s=0.25)
    stated = PlatformFigures(bandwidth_bytes_per_s=5.0)
    assert platform_figures(stated, FIGURES, (), None).bandwidth_bytes_per_s == 5.0
    measured = platform_figures(stated, FIGURES, (), speed)
    assert (measured.bandwidth_bytes_per_s, measured.apart_prefill_token_s) == (7.0, 0.25)


def test_functions_say_whether_prefill_and_the_learners_process_can_be_used() -> None:
    prefill = replace(ROLLOUT, name="prefill", stages=(Stage.PREFILL,))
    fused = replace(ROLLOUT, stages=(Stage.LEARNER, Stage.PREFILL, Stage.ROLLOUT))
    assert platform_figures(PlatformFigures(), FIGURES, (ROLLOUT, prefill), None).has_prefill
    both = platform_figures(PlatformFigures(), FIGURES, (fused,), None)
    assert both.has_prefill
    assert both.ability.shares_learner


def test_common_beginnings_count_where_a_function_could_ship_them() -> None:
    prefill = replace(ROLLOUT, name="prefill", stages=(Stage.PREFILL,))
    both = (ROLLOUT, prefill)
    # Prompts of 1, 2, 3 and 4 tokens, each the beginning of the next.
    assert planned(functions=both).observations.num_tree_tokens == 4
    assert planned(functions=both, config={"schedule__prefill__mode": "in_actor"}).observations.num_tree_tokens is None
    assert planned().observations.num_tree_tokens is None


def test_what_the_other_parts_of_past_steps_took_hints_at_how_to_execute_one() -> None:
    times = ({"gen": 9.0, "reward": 1.0, "update_actor": 2.0, "step": 12.0}, {"reward": 3.0, "update_actor": 4.0})
    past = PastSteps(timings_s=times)
    machine = Resources(num_threads=2, max_actors=8, shared_threads=True)
    assert [(part.name, part.unit_s, part.max_devices) for part in other_parts(past, CLUSTER)] == [
        ("reward", 2.0, 1),
        ("update_actor", 3.0, 1),
    ]
    assert [(part.unit_s, part.max_devices) for part in other_parts(past, machine)] == [(4.0, None), (6.0, None)]
    assert planned(past=past).plan.execution is not None
    assert planned(past=past, resources=machine).observations.num_devices == 2
    assert planned().plan.execution is None


def test_replicas_that_are_up_count_as_warm() -> None:
    up = replace(ROLLOUT, num_ready=3)
    assert (num_ready((up,), Stage.ROLLOUT), num_ready((up,), Stage.REWARD)) == (3, 0)
    assert planned(functions=(up,)).observations.num_warm == 3


def test_a_plan_gives_every_sample_to_one_actor_and_says_what_it_expects() -> None:
    made = planned(history=history(record(0, 0, 20, 20), record(1, 0, 1, 1), record(2, 0, 1, 2), record(3, 0, 2, 2)))
    samples = [(item.row_uid, sample) for actor in made.plan.assigned for item in actor for sample in item.samples]
    assert sorted(samples) == [(prompt.row_uid, sample) for prompt in prompts_of_epoch(4) for sample in (0, 1)]
    assert made.plan.expected is not None
    assert made.plan.expected.time_s > 0
    assert made.sources == {"history": 4}
    assert made.estimates["train-000000.e0"].max == 20.0


def test_a_measured_speed_has_the_places_of_this_run() -> None:
    speed = KnownSpeed(threads=2, profile=replace(PRIOR, base_s=0.5, max_num_sequences=99))
    observations = planned(speed=speed).observations
    assert observations.profile == replace(PRIOR, base_s=0.5, max_num_sequences=4)
    assert observations.profile_threads == 2
    assert planned().observations.profile is None


def test_the_config_has_its_say() -> None:
    assert planned(config={"rollout__num_actors": 3}).plan.num_actors == 3
    one = planned(config={"schedule__scaling__max_actors": 1})
    assert one.plan.num_actors == 1


def test_the_same_knowledge_makes_the_same_plan() -> None:
    config = {"schedule__assignment": "random"}
    assert planned(config=config).plan == planned(config=config).plan


@in_virtual_time
async def test_a_round_is_planned_by_what_the_run_and_its_store_know(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await world.context()
    metrics = {"schedule/lengths/mean": 5.0, "schedule/holding/rollout/load_s": 0.75}
    await run.store.runs.advance(
        RUN,
        fence=run.fence,
        expected=None,
        manifest=b"m",
        history={"kind": "step", "step": 0, "metrics": metrics},
        records=StepRecords(step=0, lengths={"train-000001": "[[0,[7,9]]]"}),
    )
    made = await plan_round(run, prompts_of_epoch(3, epoch=1), await read_past(run), seed=0)
    expected = {row: estimate.lengths for row, estimate in made.estimates.items()}
    assert expected["train-000001.e1"] == (7.0, 9.0)
    assert expected["train-000000.e1"] == (8.0, 8.0)
    assert made.observations.platform.weight_load_s == 0.75
    assert made.observations.platform.cold_start_s == 2.0
