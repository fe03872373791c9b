"""The base of every section of a run's config."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen group of keys. The docstring under a field is its documentation everywhere: OpenAPI, CLI, errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )
