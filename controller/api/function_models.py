"""What the API is told and says of the changes of functions. Values of variables come in and never go out."""

import re
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from controller.api.json_text import presentable
from controller.api.models import FunctionView, View
from controller.platforms.base import FunctionState
from controller.platforms.editing import FunctionChange
from controller.runs.function_swaps import Swap, SwapState, When
from controller.runs.scrubbing import scrubbed_text

IMAGE = re.compile(
    r"(?=.{1,512}$)[a-z0-9]+(?:[._:/-]+[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
TAG_OR_DIGEST = re.compile(r":[A-Za-z0-9_][A-Za-z0-9._-]*$|@sha256:[0-9a-f]{64}$")
RESERVED_ENV = ("PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION")

Amount = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")]
ResourceName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9./-]{0,62}$")]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
EnvValue = Annotated[str, StringConstraints(max_length=8192, pattern=r"^[^\x00]*$")]


class ResourceAmounts(BaseModel):
    """Amounts as Kubernetes writes them: `500m`, `2Gi`, `1`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: dict[ResourceName, Amount] = Field(default_factory=dict, max_length=16)
    limits: dict[ResourceName, Amount] = Field(default_factory=dict, max_length=16)


class FunctionChangeRequest(BaseModel):
    """What is to be different. What is not named stays as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    image: str | None = Field(default=None, examples=["registry.example/rlhfless/function-cuda:0.2.0"])
    """An image with its tag or its digest."""
    env: dict[EnvName, EnvValue | None] = Field(default_factory=dict, max_length=128)
    """Variables to set; null takes one away. They are no place for secrets: those are mounted."""
    resources: ResourceAmounts = ResourceAmounts()
    when: When = When.NOW
    """`now` is refused while a run goes on; `idle` waits for its end; `step_boundary` for the end of its step."""

    @field_validator("image")
    @classmethod
    def _is_an_image(cls, image: str | None) -> str | None:
        if image is not None and (IMAGE.fullmatch(image) is None or TAG_OR_DIGEST.search(image) is None):
            raise ValueError("it must be an image with a tag or a digest, as registry/name:tag or name@sha256:...")
        return image

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.image is None and not self.env and not self.resources.requests and not self.resources.limits:
            raise ValueError("nothing is to be changed: name an image, env or resources")
        reserved = sorted(set(self.env) & set(RESERVED_ENV))
        if reserved:
            raise ValueError(f"{reserved[0]} is set by the platform")
        return self

    def change(self) -> FunctionChange:
        """The change, as the platform takes it."""
        return FunctionChange(
            image=self.image,
            env=dict(self.env),
            requests=dict(self.resources.requests),
            limits=dict(self.resources.limits),
        )


class SwapView(View):
    """The last change of a function."""

    state: SwapState
    """`waiting`, `draining` (the old revision), `starting` (the new one), `checking`, `done` or `failed`."""
    reason: str
    """Why it failed, or what was noticed."""
    when: When
    image: str | None
    env: tuple[str, ...]
    """Names of the variables that were to be changed."""
    requests: dict[str, str]
    limits: dict[str, str]
    requested_at: float
    ended_at: float | None
    revision: str
    """The revision that got the requests at its end."""
    model: str | None
    """What the new revision says of the model in its image."""
    from_outside: bool
    """Whether somebody else made the revision, as by `kn service update`."""

    @classmethod
    def of(cls, swap: Swap) -> Self:
        """The view of a change."""
        return cls(
            state=swap.state,
            reason=presentable(scrubbed_text(swap.reason)),
            when=swap.when,
            image=swap.change.image,
            env=tuple(sorted(swap.change.env)),
            requests=dict(swap.change.requests),
            limits=dict(swap.change.limits),
            requested_at=swap.requested_at,
            ended_at=swap.ended_at,
            revision=swap.revision,
            model=presentable(swap.model),
            from_outside=swap.from_outside,
        )


class FunctionDetail(FunctionView):
    """A function and its last change."""

    change: SwapView | None
    """Null where none was asked for since the controller started."""

    @classmethod
    def of_both(cls, state: FunctionState, swap: Swap | None) -> Self:
        """The view of a function, and of its change if there is one."""
        view = FunctionView.of(state)
        return cls(**dict(view), change=None if swap is None else SwapView.of(swap))
