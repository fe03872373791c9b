"""What a reward process answers in the Open Inference Protocol V2, from its environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from shared.contracts.reward import RewardSpec
from shared.service.settings import SettingsInvalid

_NAMES = ("RLHFLESS_V2_MODEL", "RLHFLESS_V2_REWARD", "RLHFLESS_V2_THREADS")
_SPEC: TypeAdapter[RewardSpec] = TypeAdapter(RewardSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class V2Settings:
    """The reward that this process serves under a model name of its own, beside the built-in rules under theirs."""

    model: str | None
    """``RLHFLESS_V2_MODEL``: the model's name in ``/v2/models/{name}``; KServe's name of the InferenceService."""
    reward: RewardSpec | None
    """``RLHFLESS_V2_REWARD``: JSON of the reward, written as in a call: ``{"kind": "model", "model": {...}}``."""
    threads: int
    """``RLHFLESS_V2_THREADS``: compute threads of a reward model; 1 unless set."""

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "V2Settings":
        """Read and check the environment. Raises ``SettingsInvalid`` naming the variable."""
        model, reward, threads = (env.get(name) or None for name in _NAMES)
        if (model is None) != (reward is None):
            raise SettingsInvalid("RLHFLESS_V2_MODEL and RLHFLESS_V2_REWARD go together: set both, or neither")
        if model is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", model):
            raise SettingsInvalid(f"RLHFLESS_V2_MODEL is {model!r}: letters, digits, dots, dashes and underscores only")
        if not re.fullmatch(r"[1-9][0-9]{0,3}", threads or "1"):
            raise SettingsInvalid(f"RLHFLESS_V2_THREADS is {threads!r}: set it to a whole number of threads")
        return cls(model=model, reward=None if reward is None else _reward(reward), threads=int(threads or "1"))


def _reward(text: str) -> RewardSpec:
    try:
        return _SPEC.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "its start"
        raise SettingsInvalid(f"RLHFLESS_V2_REWARD is no reward, at {where}: {first['msg']}") from None
