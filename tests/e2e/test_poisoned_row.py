"""A row that kills whoever samples it ends the run by name, and the run resumes once the cause is gone."""

import shutil
from pathlib import Path

import yaml

from scripts.local_stack import REPOSITORY
from tests.e2e import killer_function
from tests.e2e.stack import Stack, running_stack
from tests.e2e.weights import TOLERANCE, checkpoint_folder, largest_difference, read_weights
from tests.e2e.workspace import Workspace

ROW = "train-000005.e0"
"""Of the second step, as rows are not shuffled."""


def manifests_with_killer(folder: Path, **environment: str) -> Path:
    """The deployed manifests, with another command for rollout."""
    shutil.copytree(REPOSITORY / "deploy" / "base" / "functions", folder)
    service = yaml.safe_load((folder / "rollout.yaml").read_text())
    [container] = service["spec"]["template"]["spec"]["containers"]
    container["command"] = ["python", "-m", "tests.e2e.killer_function"]
    container["env"] += [{"name": name, "value": value} for name, value in environment.items()]
    (folder / "rollout.yaml").write_text(yaml.safe_dump(service))
    return folder


def test_a_row_that_kills_its_worker_three_times(stack: Stack, workspace: Workspace, tmp_path: Path) -> None:
    config = workspace.config({"data.shuffle": False})
    undisturbed = read_weights(checkpoint_folder(stack.api, stack.api.succeed(config), 2))
    mended, deaths = tmp_path / "mended", tmp_path / "deaths"
    manifests = manifests_with_killer(
        tmp_path / "manifests",
        **{killer_function.ROW: ROW, killer_function.MENDED: str(mended), killer_function.DEATHS: str(deaths)},
    )
    with running_stack(workspace, tmp_path / "state", {"RLHFLESS_MANIFESTS": str(manifests)}) as deadly:
        run, reason = deadly.api.fail(config)
        assert f"the worker died 3 times on row {ROW}" in reason
        assert "poisoned_item" in reason
        assert "resume the run" in reason
        assert len(deaths.read_text().splitlines()) == 3
        assert deaths.read_text().splitlines()[-1] == f"['{ROW}']", "its last chance is its own"
        assert deadly.api.steps(run) == [0]
        assert deadly.api.run(run)["info"]["finished_at"] is not None
        mended.touch()
        assert deadly.api.request("POST", f"/v1/runs/{run}/resume").json()["info"]["error"] is None
        deadly.api.wait(run, "succeeded")
        assert deadly.api.steps(run) == [0, 1]
        assert largest_difference(read_weights(checkpoint_folder(deadly.api, run, 2)), undisturbed) <= TOLERANCE
