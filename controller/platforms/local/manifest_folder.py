"""Reads the manifests of a folder: one function per file.

A stage has one function, but that the learner's process may serve it too (``controller.platforms.stage_routing``)."""

from pathlib import Path

from controller.platforms.local.cluster_defaults import LOCAL, ClusterDefaults
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.manifest_parser import parse_manifest
from controller.platforms.local.manifest_section import ManifestRefused
from shared.contracts.stage import Stage


def read_manifests(folder: Path, *, cluster: ClusterDefaults = LOCAL) -> dict[str, FunctionManifest]:
    """The functions by name, on a cluster with these defaults.

    Raises ``ManifestRefused``, also for two files with one name, or between which calls of a stage could not choose.
    """
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ManifestRefused(str(folder), "*.yaml", "there is no manifest in this folder")
    functions: dict[str, FunctionManifest] = {}
    served_by: dict[tuple[Stage, int], FunctionManifest] = {}
    for file in files:
        manifest = parse_manifest(file.read_text(), source=str(file), cluster=cluster)
        if manifest.name in functions:
            other = functions[manifest.name].source
            raise ManifestRefused(manifest.source, "metadata.name", f"{manifest.name!r} is also in {other}")
        for stage in manifest.stages:
            place = (stage, len(manifest.stages))
            if place in served_by:
                other = served_by[place].source
                raise ManifestRefused(
                    manifest.source, "env.RLHFLESS_STAGES", f"{stage.value} is also served by {other}"
                )
            served_by[place] = manifest
        functions[manifest.name] = manifest
    return functions
