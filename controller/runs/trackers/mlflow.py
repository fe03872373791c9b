"""MLflow: the server that ``MLFLOW_TRACKING_URI`` names, else a database file in the run's folder."""

import re
from collections.abc import Mapping
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient, get_tracking_uri, is_tracking_uri_set

from controller.runs.trackers.points import Point
from controller.runs.trackers.tracking import Tracked

RUN_TAG = "rlhfless.run"
MAX_NAME_CHARS = 250
"""Characters of a metric's name that every MLflow store takes."""
MAX_PARAM_CHARS = 500
"""Characters of one value that every MLflow store takes."""
MAX_PARAMS = 100
"""Values in one request."""


class MlflowTracker:
    """An MLflow run that carries our run's id as a tag: the next owner goes on with the same one."""

    def __init__(self, tracked: Tracked) -> None:
        tracked.folder.mkdir(parents=True, exist_ok=True)
        local = f"sqlite:///{tracked.folder.absolute() / 'mlflow.db'}"
        self._client = MlflowClient(get_tracking_uri() if is_tracking_uri_set() else local)
        experiment = self._client.get_experiment_by_name(tracked.project)
        experiment_id = (
            self._client.create_experiment(tracked.project) if experiment is None else experiment.experiment_id
        )
        known = self._client.search_runs([experiment_id], filter_string=f"tags.`{RUN_TAG}` = '{tracked.run}'")
        if known:
            self._run_id = known[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            created = self._client.create_run(experiment_id, run_name=tracked.run, tags={RUN_TAG: tracked.run})
            self._run_id = created.info.run_id
            self._log_config(tracked.config)
        if tracked.points:
            self.log(tracked.points[-1])

    def log(self, point: Point) -> None:
        """See ``Tracker.log``."""
        at_ms = round(point.time * 1000)
        metrics = [Metric(metric_name(name), value, at_ms, point.step) for name, value in point.metrics.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        """See ``Tracker.close``."""
        self._client.set_terminated(self._run_id)

    def _log_config(self, config: Mapping[str, Any]) -> None:
        params = [Param(name, str(value)[:MAX_PARAM_CHARS]) for name, value in _leaves(config)]
        for start in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(self._run_id, params=params[start : start + MAX_PARAMS])


def metric_name(name: str) -> str:
    """The name as MLflow takes it: a data source in it may be any text, and a path must not lead elsewhere."""
    plain = re.sub(r"[^\w .:/-]", "_", name.replace("@", "_at_"))
    return "/".join(part if part.strip(".") else "_" for part in plain[:MAX_NAME_CHARS].split("/"))


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for name, value in tree.items():
        leaves += _leaves(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return leaves
