"""controller → reward: score the completions of some rows."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shared.contracts.policy import BlobRef, ModelRef
from shared.contracts.wire import Wire

RuleName = Literal["exact_match", "exact_number", "math", "multiple_choice", "reasoning_gym", "regex", "code"]
"""The built-in verifiers."""

PartName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
"""Names a part in metrics and in ``reward_parts``."""


OnTimeout = Literal["fail", "wrong"]
"""What a completion is over which the rule takes longer than ``timeout_s``: a failure, or wrong (reward 0)."""


class MathParameters(Wire):
    """Of ``math``: equivalence of the extracted answer and the ground truth, by math-verify."""

    rule: Literal["math"] = "math"
    precision: int = Field(ge=0, le=15, default=6)
    """Decimal places to which floats are compared."""
    strict: bool = True
    """Whether variables are compared by name, and sets with sets only."""
    boxed_only: bool = False
    r"""Whether an answer counts in ``\boxed{}`` alone."""
    on_timeout: OnTimeout = "fail"


class MultipleChoiceParameters(Wire):
    """Of ``multiple_choice``: the letter that the completion chooses."""

    rule: Literal["multiple_choice"] = "multiple_choice"
    letters: str = Field(pattern=r"^[A-Z]{2,26}$", default="ABCDEFGHIJ")
    """Letters that are choices."""


class RegexParameters(Wire):
    """Of ``regex``: a format, as a regular expression of Python's ``re``."""

    rule: Literal["regex"] = "regex"
    pattern: str = Field(min_length=1, max_length=4096)
    match: Literal["full", "search"] = "full"
    """Whether the whole completion has to match, or some part of it."""
    dot_all: bool = True
    """Whether ``.`` stands for a line's end too."""
    on_timeout: OnTimeout = "fail"

    @model_validator(mode="after")
    def _compiles(self) -> Self:
        try:
            re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"pattern is no regular expression: {error}") from error
        return self


class CodeParameters(Wire):
    """Of ``code``: tests that the completion's Python program passes in the sandbox."""

    rule: Literal["code"] = "code"
    test_timeout_s: float = Field(gt=0, le=600, default=6.0)
    """Seconds of CPU for one test; a test that takes longer is not passed."""
    memory_bytes: int = Field(ge=2**26, le=2**36, default=2**29)
    """Address space of the program."""
    partial: bool = False
    """Whether the reward is the share of the tests that are passed; else all have to be."""


RuleParameters = Annotated[
    MathParameters | MultipleChoiceParameters | RegexParameters | CodeParameters, Field(discriminator="rule")
]


class RuleReward(Wire):
    """A built-in verifier, by name."""

    kind: Literal["rule"] = "rule"
    name: RuleName
    parameters: RuleParameters | None = None
    """Of this rule; its defaults unless given."""

    @model_validator(mode="after")
    def _own_parameters(self) -> Self:
        if self.parameters is not None and self.parameters.rule != self.name:
            raise ValueError(f"the parameters are those of {self.parameters.rule}, not of {self.name}")
        if self.parameters is None and self.name == "regex":
            raise ValueError("regex needs a pattern in its parameters")
        return self


class FunctionReward(Wire):
    """A user's function. verl's and TRL's signatures are recognised, sync or async."""

    kind: Literal["function"] = "function"
    path: str
    """A Python file under the configured roots; for ``source="module"`` the dotted name of an installed module."""
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")
    source: Literal["file", "module"] = "file"


class ModelReward(Wire):
    """A reward model: a transformers sequence classifier with one label, whose logit is the reward."""

    kind: Literal["model"] = "model"
    model: ModelRef
    max_tokens: int = Field(ge=2, le=2**20, default=4096)
    """Longest prompt and completion together; a longer one is a failure, never truncated."""
    batch_tokens: int = Field(ge=1, le=2**24, default=16_384)
    """Padded tokens of one forward pass."""

    @property
    def name(self) -> str:
        """How it is called where it is the only reward."""
        return "model"


TensorName = Annotated[str, Field(min_length=1, max_length=128)]


class TensorNames(Wire):
    """Open Inference Protocol V2: which tensor carries what. A field without a name is not sent."""

    prompt: TensorName | None = "prompt"
    completion: TensorName | None = "completion"
    text: TensorName | None = None
    """Prompt and completion as one text."""
    ground_truth: TensorName | None = None
    score: TensorName = "score"
    """The answer: one float for each completion."""


class RemoteReward(Wire):
    """A reward by HTTP. ``url`` has to be allowed by the function's settings."""

    kind: Literal["remote"] = "remote"
    url: str = Field(pattern=r"^https?://[^\s@?#]+$", max_length=2048)
    """Of the JSON protocol: where to POST. Of V2: the server, before ``/v2/models``."""
    protocol: Literal["json", "v2"] = "json"
    model: str | None = Field(pattern=r"^[A-Za-z0-9._-]+$", default=None)
    """V2: the model's name at its server."""
    tensors: TensorNames = TensorNames()
    batch_size: int = Field(ge=1, le=4096, default=32)
    """Completions in one request; ``timeout_s`` is the limit of each attempt of a request."""
    secret: str | None = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$", default=None)
    """Name of the mounted secret that is sent as a bearer token."""

    @property
    def name(self) -> str:
        """How it is called where it is the only reward."""
        return "remote"

    @model_validator(mode="after")
    def _names_its_model(self) -> Self:
        if (self.protocol == "v2") != (self.model is not None):
            raise ValueError("a model is named for protocol v2, and only there")
        return self


SingleReward = Annotated[
    RuleReward | FunctionReward | ModelReward | RemoteReward,
    Field(discriminator="kind"),
]


Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
"""Factor of a part. One near the largest float would make an infinite reward of a finite value."""


class RewardPart(Wire):
    """One addend of a reward."""

    name: PartName
    weight: Weight = 1.0
    shaping: bool = False
    """Whether it is no sign of correctness (a length penalty, a format): dynamic sampling does not look at it."""
    reward: SingleReward


class SumReward(Wire):
    """The weighted sum of the parts that apply to a completion."""

    kind: Literal["sum"] = "sum"
    parts: tuple[RewardPart, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct_names(self) -> Self:
        if len({part.name for part in self.parts}) < len(self.parts):
            raise ValueError("two parts have the same name")
        if all(part.shaping for part in self.parts):
            raise ValueError("all parts are shaping: one has to say what is correct")
        return self


RewardSpec = Annotated[
    RuleReward | FunctionReward | ModelReward | RemoteReward | SumReward,
    Field(discriminator="kind"),
]


class RewardInputs(Wire):
    """Which completions to score, and how."""

    prompts: BlobRef
    row_uids: tuple[str, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)
    """Completions per row; a missing one is an error."""
    model: ModelRef
    """Whose tokenizer turns token ids into text."""
    reward: RewardSpec
    timeout_s: float = Field(gt=0, default=30.0)
    """Limit for one completion, in each part."""
    num_attempts: int = Field(ge=1, default=3)
    on_failure: Literal["fail", "drop_group"] = "fail"


class Score(Wire):
    """The reward of one completion."""

    row_uid: str
    sample: int
    reward: float
    reward_parts: dict[str, float] = Field(default_factory=dict)
    """Raw values, before weights. A part that does not apply is not there."""
    answer: str | None = None
    """The answer that a verifier read out of the completion, for majority votes."""


class Scores(Wire):
    """The scores of a reward call, sorted by (row, sample). Stored as a JSON blob."""

    scores: tuple[Score, ...]
    dropped_rows: tuple[str, ...] = ()
    """Rows whose group was left out since a reward failed (opt-in)."""


class PartSummary(Wire):
    """One entry of ``reward_parts`` over a call."""

    name: str
    num_scored: int = Field(ge=0)
    """Scored completions that it applies to."""
    num_none: int = Field(ge=0)
    """Scored completions that it does not apply to."""
    mean: float
    """Over ``num_scored``; 0 where that is 0."""


class RewardOutputs(Wire):
    """Reference to the scores, and their summary."""

    scores: BlobRef
    num_scored: int = Field(ge=0)
    num_dropped_groups: int = Field(ge=0, default=0)
    dropped_rows: tuple[str, ...] = ()
    """The rows of the dropped groups."""
    num_failed_groups: int = Field(ge=0, default=0)
    """Of the dropped ones, those with an error or a timeout; to the others no part applies."""
    mean_reward: float
    parts: tuple[PartSummary, ...] = ()
    """Sorted by name."""
    flat_rows: tuple[str, ...] = ()
    """Scored rows whose completions are all equally correct: the raw values without ``shaping`` parts."""
