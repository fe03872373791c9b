"""The base of everything that travels between the controller and a function."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """An immutable message. Unknown fields are refused, so that a misspelt field never passes silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")
    attempt_fields: ClassVar[frozenset[str]] = frozenset()
    """Of a call's inputs: fields that two attempts may differ in, since its result does not depend on them."""
