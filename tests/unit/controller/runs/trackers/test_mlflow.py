"""MLflow without a server: a database file in the run's folder."""

from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: creating the database's tables takes a second."""
    return tmp_path_factory.mktemp("mlflow")


def test_owners_of_a_run_write_one_mlflow_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    from mlflow.tracking import MlflowClient

    from controller.runs.trackers.mlflow import RUN_TAG, MlflowTracker
    from tests.unit.controller.runs.trackers.examples import point, tracked

    first = MlflowTracker(tracked(folder))
    first.log(point(1, **{"val-core/reward/mean@4": 0.5}))
    second = MlflowTracker(tracked(folder, point(1), point(2)))
    second.log(point(3))
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("rlhfless")
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "RUNNING"
    second.close()
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.tags[RUN_TAG] == "a-run-0001"
    assert run.data.params == {"rollout.n": "8", "trainer.seed": "42", "trainer.logger": "['console']"}
    history = client.get_metric_history(run.info.run_id, "actor/pg_loss")
    assert {(metric.step, metric.value, metric.timestamp) for metric in history} == {
        (1, 1.0, 1_001_000), (2, 2.0, 1_002_000), (3, 3.0, 1_003_000),
    }  # fmt: skip
    assert run.data.metrics["val-core/reward/mean_at_4"] == 0.5
    # Another run of the project is another MLflow run.
    other = MlflowTracker(tracked(folder, run="another-run"))
    other.close()
    assert len(client.search_runs([experiment.experiment_id])) == 2


def test_a_data_source_of_any_name_is_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    from mlflow.tracking import MlflowClient

    from controller.runs.trackers.mlflow import MlflowTracker
    from tests.unit.controller.runs.trackers.examples import point, tracked

    tracker = MlflowTracker(tracked(tmp_path))
    sources = ("math (hard)", "C++", "..", "", "/etc", "a\nb", "x" * 300)
    tracker.log(point(1, **{f"val-core/{source}/mean@1": 0.5 for source in sources}))
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    [run] = client.search_runs([client.get_experiment_by_name("rlhfless").experiment_id])
    names = {name for name in run.data.metrics if name.startswith("val-core/")}
    assert names >= {"val-core/math _hard_/mean_at_1", "val-core/C__/mean_at_1", "val-core/_/mean_at_1"}
    assert len(names) == 6, "two names of no text are one"
    tracker.close()
