"""``platform``: what the run may use of the machine."""

from pydantic import Field

from controller.runs.config.section import Section


class PlatformConfig(Section):
    """Limits on the resources of a run."""

    threads: int | None = Field(ge=1, le=1024, default=None)
    """Compute threads of all replicas that compute at once. Default null: the machine's cores."""
