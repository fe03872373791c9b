"""``schedule``: how generation is spread over actors. Each technique has its switch, so that its gain can be seen."""

from pydantic import Field

from controller.runs.config.section import Section
from controller.scheduling.assignment import Assignment
from controller.scheduling.migration import WithKv
from controller.scheduling.prefill_choice import Mode

DEFAULT_BUFFER_S = 1.0


class ScalingConfig(Section):
    """How many actors sample a batch."""

    enable: bool = True
    """Whether the number of actors is chosen by expected time and cost. Default true; false takes as many as there may
    be, or ``rollout.num_actors``."""
    lambda_: float = Field(ge=0, le=1, default=0.7)
    """Weight of time against cost, also written ``lambda``: 1 is the fastest number of actors, 0 the cheapest. It
    weighs the way of prefill and each migration too. Default 0.7, RLHFless's."""
    min_actors: int | None = Field(ge=1, le=2**12, default=None)
    """Fewest actors. Default null: as many as have room for all completions at once."""
    max_actors: int | None = Field(ge=1, le=2**12, default=None)
    """Most actors. Default null: by the function's manifest and the platform."""


class PrefillConfig(Section):
    """Where prompts are prefilled."""

    mode: Mode = "auto"
    """In each actor (in_actor), which prefills a prompt once for its group, or by the function prefill, which ships the
    keys and values (disaggregated). Default auto: what measured speeds make cheaper."""


class MigrationConfig(Section):
    """Cutting an actor short, and moving what it has not finished to others."""

    enable: bool = True
    """Whether unfinished completions move. Default true."""
    tau: float = Field(gt=0, le=1, default=0.7)
    """Share of an actor's completions that must be done before the rest may move. Default 0.7, RLHFless's; 1 moves
    nothing."""
    end_game: bool = True
    """Whether the last completions of a batch are gathered on fewer actors where that takes no longer. Default true."""
    with_kv: WithKv = "auto"
    """Whether keys and values move along (always) or are computed again (never). Default auto: the quicker."""


class LocalityConfig(Section):
    """Where actors run."""

    enable: bool = True
    """Whether the longest prompts and the prefill run in the learner's process, and heavy actors near it, as far as the
    platform can. Default true."""


class HoldingConfig(Section):
    """What happens to replicas between two uses."""

    enable: bool = True
    """Whether a replica is held over a gap that is shorter than its release and return. Default true; false releases
    every replica after its work."""
    prewarm: bool = True
    """Whether replicas are started before their next use, by the shortest past duration. Default true."""
    buffer_s: float = Field(ge=0, le=3600, default=DEFAULT_BUFFER_S)
    """Seconds by which a pre-warmed replica is to be ready early. Default 1."""


class ProbingConfig(Section):
    """Lengths of prompts that are seen for the first time."""

    enable: bool = True
    """Whether the first finished completions of a group tell how long the others may be. Default true."""


class ScheduleConfig(Section):
    """The schedule of generation, by RLHFless (arXiv 2602.22718)."""

    assignment: Assignment = "auto"
    """Which actor samples which prompts: sorted by expected length and cut by equal counts (sorted_equal, RLHFless's),
    or where it costs least within the time of these (sorted_unequal); mixed, for even times (balanced), or without
    looking at lengths (random, in_order). Default auto, which is not RLHFless's: the one of sorted_equal, cuts within
    several bounds of the time, and balanced that is expected to be best, time weighed against cost by
    ``scaling.lambda``."""
    length_window: int = Field(ge=1, le=2**10, default=1)
    """Past epochs that a prompt's expected length is the moving average of. Default 1, RLHFless's: the last one."""
    scaling: ScalingConfig = ScalingConfig()
    prefill: PrefillConfig = PrefillConfig()
    migration: MigrationConfig = MigrationConfig()
    locality: LocalityConfig = LocalityConfig()
    holding: HoldingConfig = HoldingConfig()
    probing: ProbingConfig = ProbingConfig()
