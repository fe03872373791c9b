"""What rank 0 asks of the others: to make an update with it, or a pass for logprobs."""

from collections.abc import Sequence
from dataclasses import dataclass

from functions.learner.ranks.channel import Message
from functions.learner.ranks.row_blob import decode_rows, encode_rows
from functions.learner.rows import TrainRow
from shared.contracts.call import StageCall
from shared.contracts.learner import LearnerInputs
from shared.training.progress import UpdateProgress

ORDER = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Everything that a rank needs besides weights and moments, which rank 0 sends where the others lack them."""

    path: str
    """The model's folder."""
    adapter: bytes
    """A LoRA adapter of the model's, whose matrices are trained in place of its weights; empty without one."""
    call: StageCall[LearnerInputs]
    """An update call, or one for advantages, of which the ranks compute the logprobs only."""
    rows: Sequence[TrainRow]
    progress: UpdateProgress | None = None
    loads_weights: bool
    """Whether weights come from rank 0 first."""
    loads_state: bool
    """Whether the optimizer's moments do."""
    num_updates: int = 0
    """How often the optimizer that they come from was applied."""

    def to_message(self) -> Message:
        """For the channel."""
        body = {
            "kind": ORDER,
            "path": self.path,
            "call": self.call.model_dump(mode="json"),
            "loads_weights": self.loads_weights,
            "loads_state": self.loads_state,
            "num_updates": self.num_updates,
        }
        progress = b"" if self.progress is None else self.progress.to_blob()
        return Message(body, (encode_rows(self.rows), progress, self.adapter))

    @classmethod
    def from_message(cls, message: Message) -> "Order":
        """Inverse of ``to_message``."""
        rows, progress, adapter = message.blobs
        return cls(
            path=message.body["path"],
            adapter=adapter,
            call=StageCall[LearnerInputs].model_validate(message.body["call"]),
            rows=decode_rows(rows),
            progress=UpdateProgress.from_blob(progress) if progress else None,
            loads_weights=message.body["loads_weights"],
            loads_state=message.body["loads_state"],
            num_updates=message.body["num_updates"],
        )
