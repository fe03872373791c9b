"""What must hold between a learning rate and the run's number of steps, which the data has a say in."""

from collections.abc import Iterator

from controller.runs.config.actor import ActorOptimConfig
from controller.runs.config.problems import ConfigProblem
from controller.runs.config.run_config import RunConfig


def schedule_problems(config: RunConfig, total_steps: int) -> list[ConfigProblem]:
    """Learning rates whose warm-up does not end within the run's ``total_steps``. Pure."""
    problems = list(_problems("actor.optim", config.actor.optim, total_steps))
    if config.uses_critic:
        problems += _problems("critic.optim", config.critic.optim, total_steps)
    return problems


def _problems(section: str, optim: ActorOptimConfig, total_steps: int) -> Iterator[ConfigProblem]:
    """A constant rate is reached within the run; one that falls needs a step to fall in."""
    falls = optim.lr_scheduler_type != "constant"
    longest = total_steps - 1 if falls else total_steps
    if optim.lr_warmup_steps > longest:
        needed = f"a {optim.lr_scheduler_type} learning rate falls after its warm-up, and " if falls else ""
        yield ConfigProblem(
            field=f"{section}.lr_warmup_steps",
            reason=f"{needed}the run has only {total_steps} steps (by trainer.total_training_steps, "
            "trainer.total_epochs and the training rows)",
            suggestion=f"use at most {longest}, or train longer",
        )
