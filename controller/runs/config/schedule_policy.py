"""From a run's config to what its schedule is asked to do. Pure."""

from controller.runs.config.run_config import RunConfig
from controller.scheduling.observations import SchedulePolicy


def schedule_policy(config: RunConfig) -> SchedulePolicy:
    """The techniques of ``schedule`` and their constants; ``rollout.num_actors`` forces the number of actors."""
    schedule = config.schedule
    return SchedulePolicy(
        assignment=schedule.assignment,
        length_window=schedule.length_window,
        scaling=schedule.scaling.enable,
        lambda_=schedule.scaling.lambda_,
        min_actors=schedule.scaling.min_actors,
        max_actors=schedule.scaling.max_actors,
        num_actors=config.rollout.num_actors,
        prefill=schedule.prefill.mode,
        migration=schedule.migration.enable,
        tau=schedule.migration.tau,
        end_game=schedule.migration.end_game,
        with_kv=schedule.migration.with_kv,
        locality=schedule.locality.enable,
        holding=schedule.holding.enable,
        prewarm=schedule.holding.prewarm,
        buffer_s=schedule.holding.buffer_s,
        probing=schedule.probing.enable,
    )
