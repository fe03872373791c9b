"""The base of everything that travels between the controller and a function."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """An immutable message. Unknown fields are refused, so that a misspelt field never passes silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")
