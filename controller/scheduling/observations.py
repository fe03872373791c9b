"""What is known before a step, and what its schedule is asked to do: the two inputs of a plan."""

from dataclasses import dataclass

from controller.scheduling.assignment import Assignment
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.locality import NO_ABILITY, PlacementAbility
from controller.scheduling.migration import WithKv
from controller.scheduling.pipelining import Part
from controller.scheduling.prefill_choice import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the platform grants to the stages that compute at once."""

    num_threads: int
    """Compute threads of the machine, or of one replica on a cluster."""
    max_actors: int
    """Replicas of rollout that the platform can run."""
    shared_threads: bool
    """Whether all replicas compute on the same cores (one machine), or each has its own (a cluster)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFigures:
    """What the platform is like. The defaults know nothing and cost nothing."""

    cold_start_s: float = 0.0
    """From the request for an actor until it answers."""
    drain_s: float = 0.0
    """From the release of an actor until what it holds is free."""
    weight_load_s: float = 0.0
    """Fetch and load of the policy's weights by an actor."""
    units_per_actor: float = 1.0
    """GPUs of an actor (tensor parallelism), or cores where there are none."""
    learner_units: float = 1.0
    """GPUs (or cores) of the replica that prefills apart, which are the learner's."""
    bandwidth_bytes_per_s: float | None = None
    """Of prefix KV, into the store and out of it, each; ``None`` until it is measured."""
    round_trip_s: float = 0.0
    """Of one such transfer, whatever its size."""
    apart_prefill_token_s: float | None = None
    """Seconds per token of the replica that prefills apart; ``None`` until it is measured: an actor's."""
    has_prefill: bool = False
    """Whether a function prefills apart."""
    ability: PlacementAbility = NO_ABILITY


UNKNOWN_PLATFORM = PlatformFigures()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGroup:
    """One prompt of the step, and how long its completions are expected to be."""

    row_uid: str
    num_prompt_tokens: int
    estimate: LengthEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class StepObservations:
    """What is known before a step."""

    groups: tuple[PromptGroup, ...]
    group_size: int
    max_tokens: int
    """The most tokens of a completion."""
    resources: Resources
    profile: DecodeProfile | None = None
    """Of one actor; ``None`` before anything is measured."""
    profile_threads: int = 1
    """Threads of the actor that was profiled."""
    max_num_sequences: int = 256
    """Sequences that an actor decodes at once, where there is no profile."""
    platform: PlatformFigures = UNKNOWN_PLATFORM
    num_tree_tokens: int | None = None
    """Prompt tokens with every common beginning once; ``None``: nothing is known to be common."""
    num_warm: int = 0
    """Actors that are up already."""
    other_parts: tuple[Part, ...] = ()
    """What follows the sampling in a step, in the order of the flow, by past steps; none: no hint of how to execute."""
    num_devices: int = 1
    """GPUs (or threads) that all parts of a step share or divide."""
    seed: int = 0
    """Of what is drawn at random, which is only a baseline's assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePolicy:
    """Which techniques are on, and their constants: the config's section ``schedule``."""

    assignment: Assignment = "auto"
    length_window: int = 1
    scaling: bool = True
    lambda_: float = 0.7
    min_actors: int | None = None
    max_actors: int | None = None
    num_actors: int | None = None
    """Forces the number (``rollout.num_actors``)."""
    prefill: Mode = "auto"
    migration: bool = True
    tau: float = 0.7
    end_game: bool = True
    with_kv: WithKv = "auto"
    locality: bool = True
    holding: bool = True
    prewarm: bool = True
    buffer_s: float = 1.0
    probing: bool = True
