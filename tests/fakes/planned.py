"""Plans of made-up steps: four groups of two, on a cluster of one-threaded actors unless told otherwise."""

from dataclasses import replace
from typing import Any

from controller.platforms.base import FunctionState, PlatformFigures
from controller.runs.config.schedule_policy import schedule_policy
from controller.runs.past_steps import PastSteps
from controller.runs.plan_records import HoldingRecord, Measured, PlanRecord, round_record
from controller.runs.planning import Known, Planned, plan_known
from controller.scheduling.observations import Resources
from shared.contracts.prompt import Prompt
from shared.contracts.stage import Stage
from tests.fakes.world import config_of

CLUSTER = Resources(num_threads=1, max_actors=8, shared_threads=False)
ROLLOUT = FunctionState(
    name="rollout",
    stages=(Stage.ROLLOUT,),
    url="http://rollout",
    revision="rollout-00001",
    image="function:1",
    ready=True,
    reason="",
    num_replicas=0,
    num_ready=0,
    num_pending=0,
    num_in_flight=0,
    num_queued=0,
    min_scale=0,
    max_scale=8,
)


def prompts_of_epoch(count: int, *, epoch: int = 0) -> tuple[Prompt, ...]:
    """Prompts as they are drawn: ``train-000000.e0``, ..., each a token longer than the one before."""
    return tuple(
        Prompt(row_uid=f"train-{number:06d}.e{epoch}", token_ids=tuple(range(number + 1)), text=str(number))
        for number in range(count)
    )


def known(**fields: Any) -> Known:
    """What is known of a run that has just begun."""
    nothing = Known(
        history={},
        answers={},
        past=PastSteps(),
        speed=None,
        functions=(ROLLOUT,),
        lives=(),
        platform=PlatformFigures(),
        resources=CLUSTER,
    )
    return replace(nothing, **fields)


def planned(*, count: int = 4, config: dict[str, Any] | None = None, **fields: Any) -> Planned:
    """A plan for so many prompts; ``fields`` are of ``Known``."""
    return plan_known(known(**fields), prompts_of_epoch(count), config_of(**(config or {})), seed=1)


def plan_record(*, step: int = 0, done: bool = False) -> PlanRecord:
    """The record of a step."""
    round_ = round_record(0, planned())
    if done:
        took = Measured(time_s=2.0, replica_s=6.0, unit_s=6.0, time_error=-0.25, cost_error=None)
        round_ = replace(round_, measured=took)
    decided = HoldingRecord(
        stage=Stage.ROLLOUT,
        decision="release",
        reason="idle for 60 s, released and back for 33 s",
        idle_s=60.0,
        predicted_saved_s=27.0,
        prewarm_at=None,
    )
    return PlanRecord(
        step=step,
        state="done" if done else "running",
        policy=schedule_policy(config_of()),
        rounds=(round_,),
        holding=(decided,) if done else (),
    )
