"""The Secret that is made apart from the manifests, as the script that makes it prints it."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster-secret"


def printed_secret() -> dict[str, Any]:
    """A fresh one."""
    done = subprocess.run(["bash", str(SCRIPT)], capture_output=True, text=True, check=True)
    return dict(yaml.safe_load(done.stdout))


@cache
def secret_keys_made() -> dict[str, set[str]]:
    """Its name and its keys."""
    secret = printed_secret()
    return {secret["metadata"]["name"]: set(secret["stringData"])}
