"""``reward``: what a completion is worth."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from controller.runs.config.section import Section
from shared.contracts.reward import (
    FunctionReward,
    ModelReward,
    PartName,
    RemoteReward,
    RewardPart,
    RuleName,
    RuleReward,
    SingleReward,
    SumReward,
    Weight,
)

ModuleFunction = Annotated[
    str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_][A-Za-z0-9_]*$", max_length=1024)
]
"""``package.module:function``."""

_FORMS = ("rule", "function", "model", "remote")
_SINGLE: TypeAdapter[Any] = TypeAdapter(SingleReward)
_WITHOUT_TRUTH = frozenset({"regex"})


class CustomRewardFunction(Section):
    """A function of the user's, with verl's or TRL's signature."""

    path: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Python file, under the configured roots. Default null: ``reward.rule`` is used."""
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$", default="compute_score")
    """Function in that file. Default compute_score, as in verl."""
    module: ModuleFunction | None = None
    """Function in a module that is installed where the reward function runs, as ``package.module:function``. Default
    null: ``path`` is used."""


class RewardPartConfig(Section):
    """One addend of the reward: its name, its weight, and one of ``rule``, ``function``, ``model`` and ``remote``."""

    name: PartName
    """Names it in metrics."""
    weight: Weight = 1.0
    """Factor of its value, from -1e6 to 1e6. Default 1."""
    shaping: bool = False
    """Whether it is no sign of correctness: dynamic sampling does not look at it. Default false."""
    rule: RuleName | None = None
    """A built-in verifier."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """The verifier's parameters, such as ``{pattern: ...}`` of regex. Default: its own."""
    function: ModuleFunction | Annotated[str, Field(pattern=r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """A function of the user's: ``file.py:function`` or ``package.module:function``."""
    model: dict[str, Any] | None = None
    """A reward model: ``path``, and ``max_tokens`` and ``batch_tokens`` unless their defaults do."""
    remote: dict[str, Any] | None = None
    """A reward by HTTP: ``url``, and ``protocol``, ``model``, ``tensors``, ``batch_size``, ``secret``."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        unknown = sorted(set(map(str, value)) - cls.model_fields.keys()) if isinstance(value, dict) else []
        if unknown:
            raise ValueError(f"a reward part has no {', '.join(unknown)}; it has {', '.join(cls.model_fields)}")
        return value

    @model_validator(mode="after")
    def _one_reward(self) -> Self:
        given = [form for form in _FORMS if getattr(self, form) is not None]
        if len(given) != 1:
            raise ValueError(f"reward part {self.name!r} has {' and '.join(given) or 'none'} of {', '.join(_FORMS)}")
        if self.parameters and self.rule is None:
            raise ValueError(f"reward part {self.name!r} has parameters, which are a rule's")
        try:
            self.to_wire()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(step) for step in first["loc"] if step not in _FORMS)
            raise ValueError(f"reward part {self.name!r}: {place}: {first['msg']}") from None
        return self

    def to_wire(self) -> RewardPart:
        """As the reward function is told."""
        return RewardPart(name=self.name, weight=self.weight, shaping=self.shaping, reward=self._reward())

    def _reward(self) -> Any:
        if self.rule is not None:
            own = {"parameters": {"rule": self.rule, **self.parameters}} if self.parameters else {}
            return _SINGLE.validate_python({"kind": "rule", "name": self.rule, **own})
        if self.function is not None:
            path, _, name = self.function.rpartition(":")
            return FunctionReward(path=path, name=name, source="file" if path.endswith(".py") else "module")
        if self.model is not None:
            options = {key: value for key, value in self.model.items() if key != "path"}
            return _SINGLE.validate_python({"kind": "model", "model": {"path": self.model.get("path")}, **options})
        return _SINGLE.validate_python({"kind": "remote", **(self.remote or {})})


class RewardConfig(Section):
    """A built-in rule, a function, or a weighted sum of several; and what happens when it fails."""

    rule: RuleName | None = None
    """Name of a built-in verifier. Default null: ``reward.custom_reward_function`` or ``reward.parts``; exactly one is
    given."""
    custom_reward_function: CustomRewardFunction = CustomRewardFunction()
    parts: tuple[RewardPartConfig, ...] | None = Field(min_length=1, default=None)
    """Weighted sum: a list of ``{name, weight, shaping}`` with one of ``rule`` and its ``parameters``, ``function``,
    ``model``, ``remote``. Default null: the reward has one part."""
    timeout_s: float = Field(gt=0, le=86_400, default=30.0)
    """Seconds that the reward of one completion may take. Default 30: a slow check passes, a hang is found."""
    num_attempts: int = Field(ge=1, le=100, default=3)
    """Tries before a failure counts. Default 3: a hiccup of a remote judge does not end a run."""
    on_failure: Literal["fail", "drop_group"] = "fail"
    """After the last try: the run fails naming the prompt, or the group is left out and counted. Default fail. A
    failure is never a score of 0."""

    @property
    def needs_ground_truth(self) -> bool:
        """Whether every row has to have one: built-in rules compare with it, users' functions may not."""
        rules = [self.rule, *(part.rule for part in self.parts or ())]
        return any(rule is not None and rule not in _WITHOUT_TRUTH for rule in rules)

    def to_wire(self) -> RuleReward | FunctionReward | ModelReward | RemoteReward | SumReward:
        """What scores the completions. Raises ValueError for a config that was not checked."""
        function = self.custom_reward_function
        if self.parts is not None:
            return SumReward(parts=tuple(part.to_wire() for part in self.parts))
        if self.rule is not None:
            return RuleReward(name=self.rule)
        if function.module is not None:
            module, _, name = function.module.partition(":")
            return FunctionReward(path=module, name=name, source="module")
        if function.path is None:
            raise ValueError("a checked config has a rule, a function or parts")
        return FunctionReward(path=function.path, name=function.name)
