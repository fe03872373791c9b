"""``scripts/cluster-secret``: the Secret that every pod's reference finds."""

import re
import subprocess
from pathlib import Path

from shared.service.settings import read_token
from tests.manifests.schemas import schema_problems
from tests.manifests.secrets import SCRIPT, printed_secret


def test_it_prints_a_secret_that_kubernetes_takes() -> None:
    secret = printed_secret()
    assert list(schema_problems(secret)) == []
    assert secret["metadata"]["name"] == "rlhfless"
    # Where it goes is said when it is created.
    assert "namespace" not in secret["metadata"]


def test_its_values_are_fresh_and_all_different() -> None:
    first, second = printed_secret()["stringData"], printed_secret()["stringData"]
    values = [*first.values(), *second.values()]
    assert len(set(values)) == 8
    assert all(re.fullmatch("[0-9a-f]{48}", value) for value in values)


def test_functions_take_its_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(printed_secret()["stringData"]["token"])
    assert len(read_token({"RLHFLESS_TOKEN_FILE": str(file)})) == 48


def test_it_explains_itself_instead_of_taking_arguments() -> None:
    done = subprocess.run(["bash", str(SCRIPT), "--namespace", "a"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "kubectl create" in done.stderr
    assert done.stdout == ""
