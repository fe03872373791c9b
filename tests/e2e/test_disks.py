"""A disk that fails when it is written to ends the run by name, and the run resumes once there is room."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.reference_run import ReferenceRun
from tests.e2e.stack import Stack
from tests.e2e.waiting import wait_until
from tests.e2e.workspace import Workspace

NUM_BYTES = 20_000
"""Less than the model's weights, more than anything else that the controller writes."""


@contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """No file of the process gets larger than ``NUM_BYTES``: to who writes it looks as a disk that is full."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (NUM_BYTES, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


def assert_resumes(stack: Stack, run: str, reference: ReferenceRun) -> None:
    """Resumed, the run comes to what it would have come to."""
    assert stack.api.request("POST", f"/v1/runs/{run}/resume").status_code == 200
    stack.api.wait(run, "succeeded")
    reference.assert_same(stack.api, run)


def test_a_disk_that_is_full_when_the_checkpoint_is_written(stack: Stack, short_run: ReferenceRun) -> None:
    with full_disk(stack.pid):
        run, reason = stack.api.fail(short_run.config)
    assert "cannot write the checkpoint" in reason
    assert "File too large" in reason
    assert "Free some space" in reason
    assert stack.api.get(f"/v1/runs/{run}/checkpoints") == {"checkpoints": []}
    left = [path.name for path in (stack.state_dir / "checkpoints" / "rlhfless" / run).iterdir()]
    assert left == ["metrics.jsonl"], "no half of a checkpoint is left"
    assert_resumes(stack, run, short_run)


def test_a_checkpoint_folder_that_cannot_be_made_any_more_when_it_is_needed(
    stack: Stack, workspace: Workspace, short_run: ReferenceRun
) -> None:
    folder = workspace.root / "checkpoints"
    config = {**short_run.config, "trainer": {**short_run.config["trainer"], "default_local_dir": str(folder)}}
    run = stack.api.start(config)
    metrics = folder / "rlhfless" / run / "metrics.jsonl"
    wait_until(metrics.exists, what="the run's folder to be made")
    folder.rename(workspace.root / "moved")
    folder.write_text("a file where the folder should be")
    reason = stack.api.wait(run, "failed")["info"]["error"]
    assert f"cannot write the checkpoint {folder}" in reason
    assert "set trainer.default_local_dir to a folder that can be written" in reason
    assert "tracker jsonl is left out, the run goes on: NotADirectoryError" in stack.api.logs(run)
    folder.unlink()
    assert_resumes(stack, run, short_run)
    assert len(metrics.read_text().splitlines()) == 2, "made up for"


def test_a_blob_folder_that_cannot_be_written_when_the_learner_publishes(stack: Stack, short_run: ReferenceRun) -> None:
    run = stack.api.start(short_run.config)
    blobs = stack.state_dir / "blobs" / run
    blobs.mkdir(exist_ok=True)
    (blobs / "000001").write_text("a file where the next version's folder should be")
    reason = stack.api.wait(run, "failed")["info"]["error"]
    assert "learner: " in reason
    assert "store_refused" in reason
    assert stack.api.steps(run) == []
    (blobs / "000001").unlink()
    assert_resumes(stack, run, short_run)


def test_a_blob_that_cannot_be_deleted_is_left_and_fails_no_run(stack: Stack, short_run: ReferenceRun) -> None:
    run = stack.api.start(short_run.config)
    blobs = stack.state_dir / "blobs" / run
    blobs.mkdir(exist_ok=True)
    (blobs / "0").write_text("a file where a step's folder should be")
    stack.api.wait(run, "succeeded")
    short_run.assert_same(stack.api, run)
    assert "could not clean up after step" in stack.log()
