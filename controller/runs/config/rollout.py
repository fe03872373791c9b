"""``rollout``: how completions are sampled."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from controller.runs.config.section import Section
from shared.contracts.rollout import StopString, ToolName
from shared.contracts.training_pass import Precision

TopP = Annotated[float, Field(gt=0, le=1)]
TopK = Annotated[int, Field(ge=-1, le=2**31)]


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


StopStrings = Annotated[
    tuple[StopString, ...],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
    Field(max_length=16),
]
"""One string or several."""


class ValidationSampling(Section):
    """Sampling of evaluation, where it differs from training."""

    n: int = Field(ge=1, le=2**12, default=1)
    """Completions per held-out prompt; accuracy is their mean. Default 1, as in verl."""
    temperature: float = Field(ge=0, le=100, default=0.0)
    """0 takes the most probable token. Default 0, as in verl: the least noisy estimate of one completion."""
    top_p: TopP = 1.0
    """Smallest set of tokens whose probability reaches this. Default 1: all tokens."""
    top_k: TopK = -1
    """Most probable tokens kept. Default -1: all (0 means the same)."""


class MultiTurnConfig(Section):
    """A tool that answers the model between its turns, in training and in evaluation."""

    enable: bool = False
    """Whether a completion may have several turns. Default false. What the tool answers is part of the completion,
    counts against ``data.max_response_length``, and is never trained."""
    tool: ToolName | None = None
    """What answers: ``calculator`` turns ``<calc>12*7</calc>`` into ``<result>84</result>``. Default null: nothing."""
    max_assistant_turns: int | None = Field(ge=1, le=2**20, default=None)
    """Turns of the model; the last one gets no answer. Default null, as in verl: as many as the length has room for."""


class RolloutConfig(Section):
    """Sampling of training, and its engine."""

    n: int = Field(ge=1, le=2**12, default=8)
    """Completions per prompt: the group over which GRPO compares. Default 8, as in TRL."""
    temperature: float = Field(ge=0, le=100, default=1.0)
    """Temperature of training. Default 1: the policy itself is sampled, so that rollouts are on-policy."""
    top_p: TopP = 1.0
    """Smallest set of tokens whose probability reaches this. Default 1: below it, rollouts are not the policy's own."""
    top_k: TopK = -1
    """Most probable tokens kept. Default -1: all (0 means the same), for the same reason as ``top_p``."""
    dtype: Precision = "float32"
    """Of the policy's weights as they are published, and of sampling: float32 or bfloat16. The learner trains float32
    weights in any case and rounds a version once, when it publishes it: bfloat16 halves what is stored, sent and read,
    and samples faster on GPUs. Rollouts are then those of the rounded weights, and ``training/rollout_probs_diff_mean``
    says how far that is from the policy that is trained; ``algorithm.rollout_correction`` corrects for it. Default
    float32, with which token ids do not depend on the machine: verl's ``auto`` would make two runs of one config."""
    val_kwargs: ValidationSampling = ValidationSampling()
    max_num_seqs: int = Field(ge=1, le=2**16, default=256)
    """Completions that one replica decodes at once. Default 256, vLLM's."""
    num_actors: int | None = Field(ge=1, le=2**12, default=None)
    """Replicas of rollout. Default null: chosen by the plan."""
    ignore_eos: bool = False
    """Whether every completion, also in evaluation, gets exactly ``max_response_length`` tokens. Default false; true is
    for benchmarks."""
    min_tokens: int = Field(ge=0, le=2**20, default=0)
    """Tokens before a completion may end, also in evaluation. Default 0."""
    stop: StopStrings = ()
    """Strings that end a completion, also in evaluation; they are kept in it. Default none: only an end token does."""
    multi_turn: MultiTurnConfig = MultiTurnConfig()
