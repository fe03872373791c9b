"""Gather what is known before a step, and plan it: the edge between a run and the pure policies of scheduling."""

import asyncio
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.platforms.base import FunctionState, ReplicaLife
from controller.platforms.base import PlatformFigures as PlatformDefaults
from controller.platforms.stage_routing import state_of
from controller.runs.answers import answer_tokens
from controller.runs.config.run_config import RunConfig
from controller.runs.config.schedule_policy import schedule_policy
from controller.runs.context import RunContext
from controller.runs.length_history import History, read_history, row_and_epoch
from controller.runs.past_steps import PastSteps
from controller.runs.profiles import KnownSpeed, read_speed
from controller.runs.stage_figures import StageFigures, lives_of, stage_figures
from controller.scheduling.lengths import LengthEstimate, default_length, estimate
from controller.scheduling.locality import PlacementAbility
from controller.scheduling.observations import PlatformFigures, PromptGroup, Resources, SchedulePolicy, StepObservations
from controller.scheduling.pipelining import Part
from controller.scheduling.plan import StepPlan, plan_step
from shared.contracts.prompt import Prompt
from shared.contracts.stage import Stage
from shared.inference.distinct_prefixes import find_distinct

OTHER_PARTS = ("reward", "ref", "values", "adv", "update_critic", "update_actor")
"""What follows sampling in a step, by verl's names, in the order of the flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, and what it was made of."""

    plan: StepPlan
    observations: StepObservations
    policy: SchedulePolicy
    history: History
    """Length records of its rows, which the step adds to."""
    answers: Mapping[str, int]
    """Tokens of the rows' ground-truth answers, by uid, of those that have one."""

    @property
    def estimates(self) -> dict[str, LengthEstimate]:
        """What was expected of each row, by uid."""
        return {group.row_uid: group.estimate for group in self.observations.groups}

    @property
    def sources(self) -> dict[str, int]:
        """Rows by what their estimate is from: history, answer, default."""
        return dict(sorted(Counter(group.estimate.source for group in self.observations.groups).items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known when a round is planned, besides its prompts."""

    history: History
    answers: Mapping[str, int]
    past: PastSteps
    speed: KnownSpeed | None
    functions: Sequence[FunctionState]
    lives: Sequence[ReplicaLife]
    platform: PlatformDefaults
    resources: Resources


async def plan_round(run: RunContext, prompts: Sequence[Prompt], past: PastSteps, *, seed: int) -> Planned:
    """The plan for sampling a group of each of the prompts; ``seed`` is of what a baseline draws."""
    speed = await read_speed(run)
    known = Known(
        history=await read_history(run, [prompt.row_uid for prompt in prompts]),
        answers=await answer_tokens(run.prepared, prompts),
        past=with_earlier_runs(past, speed),
        speed=speed,
        functions=await run.platform.functions(),
        lives=await run.platform.replicas(),
        platform=run.platform.figures(),
        resources=run.resources,
    )
    return await asyncio.to_thread(plan_known, known, prompts, run.config, seed=seed)


def plan_known(known: Known, prompts: Sequence[Prompt], config: RunConfig, *, seed: int) -> Planned:
    """The plan for what is known. Pure; a large batch takes some tenths of a second."""
    policy = schedule_policy(config)
    lives = lives_of(known.functions, Stage.ROLLOUT, known.lives)
    rollout = stage_figures(Stage.ROLLOUT, lives, known.past, known.platform)
    speed = known.speed
    platform = platform_figures(known.platform, rollout, known.functions, speed)
    ships_prefixes = platform.has_prefill and policy.prefill != "in_actor"
    observations = StepObservations(
        groups=prompt_groups(prompts, known.history, known.answers, known.past, config, window=policy.length_window),
        group_size=config.rollout.n,
        max_tokens=config.data.max_response_length,
        resources=known.resources,
        profile=None if speed is None else replace(speed.profile, max_num_sequences=config.rollout.max_num_seqs),
        profile_threads=1 if speed is None else speed.threads,
        max_num_sequences=config.rollout.max_num_seqs,
        platform=platform,
        num_tree_tokens=num_tree_tokens(prompts) if ships_prefixes else None,
        num_warm=num_ready(known.functions, Stage.ROLLOUT),
        other_parts=other_parts(known.past, known.resources),
        num_devices=known.resources.num_threads if known.resources.shared_threads else known.resources.max_actors,
        seed=seed,
    )
    return Planned(
        plan=plan_step(observations, policy),
        observations=observations,
        policy=policy,
        history=known.history,
        answers=known.answers,
    )


def with_earlier_runs(past: PastSteps, speed: KnownSpeed | None) -> PastSteps:
    """``past`` with the lengths of earlier runs of the model, until this one has some of its own. Pure."""
    if speed is None or past.mean_tokens is not None:
        return past
    return replace(past, mean_tokens=speed.mean_tokens, per_answer_token=speed.per_answer_token)


def num_tree_tokens(prompts: Sequence[Prompt]) -> int:
    """Tokens of the prompts with every common beginning once. Pure."""
    return find_distinct([prompt.token_ids for prompt in prompts]).num_tree_tokens


def prompt_groups(
    prompts: Sequence[Prompt],
    history: History,
    answers: Mapping[str, int],
    past: PastSteps,
    config: RunConfig,
    *,
    window: int,
) -> tuple[PromptGroup, ...]:
    """What to expect of each prompt. Pure.

    An answer's length ranks rows; how many tokens the model takes for one of an answer is known after a step, and then
    scales it. Of a row of which nothing is known as much is expected as of the others.
    """
    records = [history.get(row_and_epoch(prompt.row_uid)[0], ()) for prompt in prompts]
    most, size = config.data.max_response_length, config.rollout.n
    known = [statistics.fmean(found[-1].lengths) for found in records if found and found[-1].lengths]
    if not known and past.mean_tokens is not None:
        known = [min(float(most), past.mean_tokens)]
    default = default_length(known, most)
    scale = past.per_answer_token or 1.0

    def answer(prompt: Prompt) -> int | None:
        tokens = answers.get(prompt.row_uid)
        return None if tokens is None else min(most, max(1, round(scale * tokens)))

    return tuple(
        PromptGroup(
            row_uid=prompt.row_uid,
            num_prompt_tokens=len(prompt.token_ids),
            estimate=estimate(found, answer_tokens=answer(prompt), group_size=size, default=default, window=window),
        )
        for prompt, found in zip(prompts, records, strict=True)
    )


def platform_figures(
    platform: PlatformDefaults, rollout: StageFigures, functions: Sequence[FunctionState], speed: KnownSpeed | None
) -> PlatformFigures:
    """What scheduling is told of the platform. Pure."""
    stages = [set(state.stages) for state in functions]
    measured = None if speed is None else speed.bandwidth_bytes_per_s
    return PlatformFigures(
        cold_start_s=rollout.cold_start_s,
        drain_s=rollout.drain_s,
        weight_load_s=rollout.load_s,
        units_per_actor=rollout.units,
        bandwidth_bytes_per_s=measured if measured is not None else platform.bandwidth_bytes_per_s,
        round_trip_s=platform.round_trip_s,
        apart_prefill_token_s=None if speed is None else speed.apart_token_s,
        has_prefill=any(Stage.PREFILL in served for served in stages),
        ability=PlacementAbility(
            shares_learner=any({Stage.LEARNER, Stage.ROLLOUT} <= served for served in stages),
            places_near=platform.num_near > 0,
            num_near=platform.num_near,
        ),
    )


def other_parts(past: PastSteps, resources: Resources) -> tuple[Part, ...]:
    """What follows sampling in a step, by what it took in past ones. Pure.

    On one machine each part has all threads; on a cluster a replica of its own, which more would not speed up.
    """
    means = {
        name: statistics.fmean(found)
        for name in OTHER_PARTS
        if (found := [times[name] for times in past.timings_s if name in times])
    }
    if resources.shared_threads:
        return tuple(Part(name=name, unit_s=seconds * resources.num_threads) for name, seconds in means.items())
    return tuple(Part(name=name, unit_s=seconds, max_devices=1) for name, seconds in means.items())


def num_ready(functions: Sequence[FunctionState], stage: Stage) -> int:
    """Replicas of the stage that take calls now."""
    state = state_of(functions, stage)
    return 0 if state is None else state.num_ready
