"""What learner and critic are told of their optimizers, as their contract."""

from controller.runs.config.actor import ActorOptimConfig
from shared.contracts.learner import OptimConfig


def optim_to_wire(optim: ActorOptimConfig, *, grad_clip: float, total_steps: int) -> OptimConfig:
    """AdamW and its schedule over the run's ``total_steps`` (see ``RunConfig.total_steps``)."""
    return OptimConfig(
        lr=optim.lr,
        lr_scheduler_type=optim.lr_scheduler_type,
        lr_warmup_steps=optim.lr_warmup_steps,
        min_lr_ratio=optim.min_lr_ratio,
        total_steps=total_steps,
        betas=optim.betas,
        eps=optim.eps,
        weight_decay=optim.weight_decay,
        grad_clip=grad_clip,
    )
