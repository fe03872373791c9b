"""A function's revisions: another template is another revision, with the name that Knative would give it."""

from dataclasses import dataclass

from controller.platforms.local.manifest import FunctionManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One template of a function."""

    manifest: FunctionManifest
    generation: int = 1

    @property
    def name(self) -> str:
        """``rollout-00001``"""
        return f"{self.manifest.name}-{self.generation:05d}"

    def next(self, manifest: FunctionManifest) -> "Revision":
        """The revision of a manifest that was read again: this one while the template is the same."""
        if manifest.template == self.manifest.template:
            return self
        return Revision(manifest=manifest, generation=self.generation + 1)
