"""How long the plan of a step takes: every number of actors compared, prompts assigned, prefill and places chosen.

RLHFless (arXiv 2602.22718, section 6.7) reports 30 ms or less for a generation batch of 512 with lengths of 2,000 to
8,000 tokens and two GPUs per actor, on up to 20 nodes of 8 GPUs. The cases here have the same shape, with groups of
eight, and lengths that are skewed as real ones are.
"""

import argparse
import gc
import json
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.plan import (
    PlatformFigures,
    PromptGroup,
    Resources,
    SchedulePolicy,
    StepObservations,
    StepPlan,
    plan_step,
)

GROUP_SIZE = 8
GPUS_PER_ACTOR = 2
MAX_TOKENS = 8192
PROFILE = DecodeProfile(
    base_s=0.02,
    per_sequence_s=1e-4,
    per_context_token_s=2e-8,
    prefill_token_s=1e-4,
    kv_capacity_tokens=4_000_000,
    max_num_sequences=1024,
    kv_bytes_per_token=320 * 1024,
    preempts=True,
)
"""About a model of 70e9 parameters on two GPUs, with room for many numbers of actors to be worth comparing."""
PLATFORM = PlatformFigures(
    cold_start_s=3.3, drain_s=30.0, weight_load_s=10.0, units_per_actor=GPUS_PER_ACTOR, bandwidth_bytes_per_s=1e10
)


@dataclass(frozen=True)
class Case:
    """One size."""

    num_prompts: int
    num_gpus: int

    @property
    def name(self) -> str:
        """As shown."""
        return f"{self.num_prompts} prompts on {self.num_gpus} GPUs"


CASES = (Case(512, 160), Case(16_384, 1024))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench scheduling", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="plans of each size")
    parser.add_argument("--group-size", type=int, default=GROUP_SIZE, help="completions per prompt")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    asked = arguments()
    cases = []
    for case in CASES:
        cases.append(measure(case, asked.repeats, asked.group_size))
        shown = {key: value for key, value in cases[-1].items() if key != "name"}
        print(f"{case.name}: {shown}")
    if asked.json:
        print(json.dumps({"what": "rlhfless scheduling", "group_size": asked.group_size, "cases": cases}))


def measure(case: Case, repeats: int, group_size: int) -> dict[str, Any]:
    """Plans of the default policy; the first one, which imports and warms up, is not counted."""
    seen, policy = observations(case, group_size), SchedulePolicy()
    plan = plan_step(seen, policy)
    times_ms = []
    for _ in range(repeats):
        # What the plan before leaves behind is not part of this one.
        del plan
        gc.collect()
        start = time.perf_counter()
        plan = plan_step(seen, policy)
        times_ms.append((time.perf_counter() - start) * 1000)
    return {
        "name": case.name,
        "plan_ms": round(statistics.median(times_ms), 3),
        "plan_ms_min": round(min(times_ms), 3),
        "plan_ms_max": round(max(times_ms), 3),
        **facts(plan),
    }


def facts(plan: StepPlan) -> dict[str, Any]:
    """What was decided, for the figure to mean something."""
    expected = plan.expected
    return {
        "num_candidates": len(plan.candidates),
        "num_actors": plan.num_actors,
        "time_s": None if expected is None else round(expected.time_s, 1),
        "unit_s": None if expected is None else round(expected.unit_s, 1),
    }


def observations(case: Case, group_size: int, seed: int = 0) -> StepObservations:
    """Prompts whose lengths are log-normal, and vary within their group."""
    draw = random.Random(seed)

    def lengths() -> tuple[float, ...]:
        middle = draw.lognormvariate(8.0, 0.5)
        return tuple(
            sorted(min(MAX_TOKENS, max(16.0, middle * draw.lognormvariate(0, 0.2))) for _ in range(group_size))
        )

    groups = tuple(
        PromptGroup(
            row_uid=f"train-{number:06d}",
            num_prompt_tokens=draw.randint(50, 1000),
            estimate=LengthEstimate(lengths=lengths(), source="history"),
        )
        for number in range(case.num_prompts)
    )
    actors = case.num_gpus // GPUS_PER_ACTOR
    return StepObservations(
        groups=groups,
        group_size=group_size,
        max_tokens=MAX_TOKENS,
        resources=Resources(num_threads=1, max_actors=actors, shared_threads=False),
        profile=PROFILE,
        platform=PLATFORM,
    )


if __name__ == "__main__":
    main()
