"""Rows with the same text are different groups: each has its own samples."""

import pytest

from controller.runs.state import RunState
from shared.contracts.completion import SampleId
from shared.contracts.stage import Purpose
from tests.e2e.in_process import Parts
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_equal_rows_make_two_groups_with_different_samples(parts: Parts, workspace: Workspace) -> None:
    files = workspace.rows("equal", [{"prompt": "1+1=", "answer": "2"}] * 2)
    config = {"data.train_files": files, "data.train_batch_size": 2, "rollout.ignore_eos": True}
    finished = await parts.run(workspace.config(config))
    assert finished.record.state == RunState.SUCCEEDED, finished.record.info
    for step, epoch in ((0, 0), (1, 1)):
        tokens = finished.tokens()[Purpose.TRAIN, step]
        groups = [f"train-00000{row}.e{epoch}" for row in range(2)]
        assert set(tokens) == {SampleId(row, sample) for row in groups for sample in range(4)}
        assert len({tuple(ids) for ids in tokens.values()}) == 8, "no two samples share their randomness"
