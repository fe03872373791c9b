"""Changes functions of this machine: what was changed lies over the manifests' folder for as long as the platform runs.

A process is started by its command, so another image makes another revision and nothing else here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from controller.platforms.base import FunctionUnknown
from controller.platforms.editing import ChangeRefused, FunctionChange, Proposal
from controller.platforms.local.manifest import FunctionManifest, Resources
from controller.platforms.local.manifest_folder import read_manifests
from controller.platforms.local.manifest_section import ManifestRefused
from controller.platforms.local.platform import LocalPlatform
from controller.platforms.local.quantities import parse_quantity
from controller.platforms.local.traffic import TrafficTarget

RESERVED_ENV = ("PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What is different from a function's manifest."""

    changes: tuple[FunctionChange, ...] = ()
    """One after another."""
    revision: str = ""
    """The revision that gets all requests; empty: as the manifest says."""


@dataclass(slots=True)
class ChangedManifests:
    """Reads the manifests of a folder with their overlays over them. Given to the platform to read with."""

    overlays: dict[str, Overlay] = field(default_factory=dict)

    def read(self, folder: Path) -> Mapping[str, FunctionManifest]:
        """The functions by name. Raises ``ManifestRefused``."""
        manifests = read_manifests(folder)
        return {
            name: _overlaid(manifest, self.overlays[name]) if name in self.overlays else manifest
            for name, manifest in manifests.items()
        }


class LocalEditor:
    """See ``FunctionEditor``."""

    def __init__(self, platform: LocalPlatform, manifests: ChangedManifests) -> None:
        """``manifests`` is what the platform reads with."""
        self._platform = platform
        self._manifests = manifests

    async def route(self, function: str, revision: str) -> None:
        """See ``FunctionEditor.route``."""
        self._apply(function, replace(await self._overlay(function), revision=revision))

    async def propose(self, function: str, change: FunctionChange) -> Proposal:
        """See ``FunctionEditor.propose``."""
        overlay, (before, newest) = await self._overlay(function), await self._revisions(function)
        self._apply(function, Overlay(changes=(*overlay.changes, change), revision=before))
        _, revision = await self._revisions(function)
        return Proposal(function=function, before=before, revision=before if revision == newest else revision)

    async def withdraw(self, proposal: Proposal) -> str:
        """See ``FunctionEditor.withdraw``."""
        overlay = await self._overlay(proposal.function)
        self._apply(proposal.function, Overlay(changes=overlay.changes[:-1], revision=proposal.before))
        return (await self._revisions(proposal.function))[1]

    async def _overlay(self, function: str) -> Overlay:
        await self._revisions(function)
        return self._manifests.overlays.get(function, Overlay())

    async def _revisions(self, function: str) -> tuple[str, str]:
        """The main and the newest revision."""
        for state in await self._platform.functions():
            if state.name == function:
                return state.revision, state.revisions[-1].name
        raise FunctionUnknown(f"there is no function {function}")

    def _apply(self, function: str, overlay: Overlay) -> None:
        before = dict(self._manifests.overlays)
        self._manifests.overlays[function] = overlay
        try:
            self._platform.apply_manifests()
        except ManifestRefused as error:
            self._manifests.overlays = before
            raise ChangeRefused(str(error)) from error


def _overlaid(manifest: FunctionManifest, overlay: Overlay) -> FunctionManifest:
    for change in overlay.changes:
        manifest = _changed(manifest, change)
    if overlay.revision:
        manifest = replace(manifest, traffic=(TrafficTarget(percent=100, revision=overlay.revision),))
    return manifest


def _changed(manifest: FunctionManifest, change: FunctionChange) -> FunctionManifest:
    reserved = sorted(set(change.env) & set(RESERVED_ENV))
    if reserved:
        raise ManifestRefused(manifest.source, f"env.{reserved[0]}", "is set by the platform")
    env = {name: value for name, value in {**manifest.env, **change.env}.items() if value is not None}
    after = replace(
        manifest,
        image=change.image or manifest.image,
        env=env,
        references={name: value for name, value in manifest.references.items() if name not in change.env},
        resources=_resources(manifest, {**change.limits, **change.requests}),
    )
    if after == manifest:
        return manifest
    told = json.dumps([change.image, dict(change.env), dict(change.requests), dict(change.limits)], sort_keys=True)
    return replace(after, template=f"{manifest.template}\n{told}")


def _resources(manifest: FunctionManifest, amounts: Mapping[str, str]) -> Resources:
    def amount(name: str, known: float) -> float:
        try:
            return float(parse_quantity(amounts[name])) if name in amounts else known
        except ValueError as error:
            raise ManifestRefused(manifest.source, f"resources.{name}", str(error)) from error

    known = manifest.resources
    return Resources(
        num_cpus=amount("cpu", known.num_cpus),
        memory_bytes=int(amount("memory", known.memory_bytes)),
        num_gpus=int(amount("nvidia.com/gpu", known.num_gpus)),
    )
