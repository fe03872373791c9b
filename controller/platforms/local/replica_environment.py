"""The environment variables of a replica's process. Pure."""

from collections.abc import Mapping

from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.manifest_section import ManifestRefused

THREAD_DEFAULTS: Mapping[str, str] = {
    # Waiting threads must not spin: two computing processes with spinning threads slow each other down.
    "OMP_WAIT_POLICY": "PASSIVE",
    # A call says how many threads it may use; these are for what runs outside a call, and for imports.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}


def function_environment(
    manifest: FunctionManifest,
    *,
    base: Mapping[str, str],
    overrides: Mapping[str, str],
    config_values: Mapping[str, str],
) -> dict[str, str]:
    """What all replicas of a function have in common; overrides win over the manifest, it over the base.

    Raises ``ManifestRefused`` with the variables that refer to a Secret or ConfigMap nobody gave.
    """
    values = {**THREAD_DEFAULTS, **base, **manifest.env}
    missing = []
    for variable, reference in manifest.references.items():
        if reference.name in config_values:
            values[variable] = config_values[reference.name]
        elif variable not in overrides and not reference.optional:
            missing.append(f"{variable} (from {reference.name})")
    if missing:
        raise ManifestRefused(manifest.source, "env", f"no value for {', '.join(missing)}")
    return {**values, **overrides}


def replica_environment(
    common: Mapping[str, str], *, service: str, revision: str, instance: str, port: int
) -> dict[str, str]:
    """What one replica gets: the common part, what Knative sets, and its own name as its host's."""
    return {
        **common,
        "K_SERVICE": service,
        "K_CONFIGURATION": service,
        "K_REVISION": revision,
        "PORT": str(port),
        "HOSTNAME": instance,
    }
