"""A row that kills whoever samples it ends the run by name, and the run resumes once the cause is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from controller.runs import sampling
from controller.runs.state import RunState
from tests.e2e import killer_function
from tests.e2e.in_process import Parts
from tests.e2e.reference_run import ReferenceRun
from tests.e2e.weights import TOLERANCE, largest_difference

pytestmark = pytest.mark.asyncio(loop_scope="package")

ROW = "train-000005.e0"
"""Of the second step, as rows are not shuffled."""


@pytest.fixture
def killer(parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The killer in place of the rollout function, as a new image would come; its deaths, one a line, and its cure."""
    monkeypatch.setattr(sampling, "LOST_LEASE_S", 1.5)
    manifest = parts.settings.manifests / "rollout.yaml"
    original = manifest.read_text()
    service = yaml.safe_load(original)
    [container] = service["spec"]["template"]["spec"]["containers"]
    container["command"] = ["python", "-m", "tests.e2e.killer_function"]
    environment = {
        killer_function.ROW: ROW,
        killer_function.MENDED: str(tmp_path / "mended"),
        killer_function.DEATHS: str(tmp_path / "deaths"),
    }
    container["env"] += [{"name": name, "value": value} for name, value in environment.items()]
    manifest.write_text(yaml.safe_dump(service))
    parts.platform.apply_manifests()
    yield tmp_path
    manifest.write_text(original)
    parts.platform.apply_manifests()


async def test_a_row_that_kills_its_worker_three_times(parts: Parts, killer: Path, short_run: ReferenceRun) -> None:
    failed = await parts.run(short_run.config)
    assert failed.record.state == RunState.FAILED
    reason = failed.record.info["error"]
    assert f"the worker died 3 times on row {ROW}" in reason
    assert "poisoned_item" in reason
    assert "resume the run" in reason
    deaths = (killer / "deaths").read_text().splitlines()
    assert len(deaths) == 3
    assert deaths[-1] == f"['{ROW}']", "its last chance is its own"
    assert failed.num_steps() == 1

    (killer / "mended").touch()
    resumed = await parts.resume(failed.record.id)
    assert resumed.record.state == RunState.SUCCEEDED, resumed.record.info
    assert resumed.num_steps() == 2
    assert largest_difference(resumed.weights(), short_run.weights) <= TOLERANCE
