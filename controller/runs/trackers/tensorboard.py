"""TensorBoard's event files, in the folder ``tensorboard`` of the run's."""

import json

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from controller.runs.trackers.points import Point
from controller.runs.trackers.tracking import Tracked


class TensorBoardTracker:
    """Adds an event file to the folder; those of earlier owners lie beside it, and TensorBoard shows them as one."""

    def __init__(self, tracked: Tracked) -> None:
        self._writer = EventFileWriter(str(tracked.folder / "tensorboard"))
        if tracked.points:
            self.log(tracked.points[-1])
        else:
            self._write_config(tracked)

    def log(self, point: Point) -> None:
        """See ``Tracker.log``."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in point.metrics.items()]
        self._writer.add_event(Event(wall_time=point.time, step=point.step, summary=Summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        """See ``Tracker.close``."""
        self._writer.close()

    def _write_config(self, tracked: Tracked) -> None:
        shown = "    " + json.dumps(tracked.config, indent=2).replace("\n", "\n    ")
        text = TensorProto(dtype=DT_STRING, string_val=[shown.encode()])
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        summary = Summary(value=[Summary.Value(tag="config", metadata=metadata, tensor=text)])
        self._writer.add_event(Event(step=0, summary=summary))
