"""The Secrets that are made apart from the manifests: by a script, and by the command that a component's head names."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "cluster-secret"
COMMAND = re.compile(r"kubectl create secret generic (\S+) ([^\n]*)")
KEY = re.compile(r"--from-(?:literal|file)=([\w.-]+)=")


def printed_secret() -> dict[str, Any]:
    """A fresh one."""
    done = subprocess.run(["bash", str(SCRIPT)], capture_output=True, text=True, check=True)
    return dict(yaml.safe_load(done.stdout))


@cache
def secret_keys_made() -> dict[str, set[str]]:
    """Names, each with its keys."""
    secret = printed_secret()
    made = {secret["metadata"]["name"]: set(secret["stringData"])}
    for file in ROOT.glob("deploy/components/*/kustomization.yaml"):
        for name, options in COMMAND.findall(file.read_text(encoding="utf-8")):
            made.setdefault(name, set()).update(KEY.findall(options))
    return made
