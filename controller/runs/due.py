"""What is to be done between two steps. Pure."""

from controller.runs.config.trainer import TrainerConfig
from controller.runs.manifest import Manifest


def evaluation_due(head: Manifest, trainer: TrainerConfig, *, total_steps: int, has_heldout: bool) -> bool:
    """Whether the head's policy is to be evaluated now."""
    if not has_heldout or head.step in head.evaluated:
        return False
    return (
        (head.step == 0 and trainer.val_before_train)
        or head.step == total_steps
        or (trainer.test_freq > 0 and head.step > 0 and head.step % trainer.test_freq == 0)
    )


def checkpoint_due(head: Manifest, trainer: TrainerConfig, *, total_steps: int) -> bool:
    """Whether the head is to be written to disk now. The checkpoint that a run began from is there already."""
    if head.step == head.first_step or any(checkpoint.step == head.step for checkpoint in head.checkpoints):
        return False
    return head.step == total_steps or (trainer.save_freq > 0 and head.step % trainer.save_freq == 0)


def is_finished(head: Manifest, trainer: TrainerConfig, *, total_steps: int, has_heldout: bool) -> bool:
    """Whether going on from the head would do nothing at all."""
    return (
        head.step >= total_steps
        and not evaluation_due(head, trainer, total_steps=total_steps, has_heldout=has_heldout)
        and not checkpoint_due(head, trainer, total_steps=total_steps)
    )
