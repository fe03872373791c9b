"""What the critic is told of a run's config, as its contract."""

from controller.runs.config.model_to_wire import training_pass
from controller.runs.config.optim_to_wire import optim_to_wire
from controller.runs.config.run_config import RunConfig
from shared.contracts.critic import ValueUpdateConfig
from shared.contracts.learner import OptimConfig


def critic_optim_config(config: RunConfig, total_steps: int) -> OptimConfig:
    """The critic's AdamW over the run's ``total_steps``."""
    return optim_to_wire(config.critic.optim, grad_clip=config.critic.grad_clip, total_steps=total_steps)


def value_update_config(config: RunConfig) -> ValueUpdateConfig:
    """From returns to a value loss; what the critic's section leaves open is as for the actor."""
    critic, actor = config.critic, config.actor
    return ValueUpdateConfig(
        cliprange_value=critic.cliprange_value,
        loss_agg_mode=critic.loss_agg_mode,
        ppo_epochs=critic.ppo_epochs or actor.ppo_epochs,
        ppo_mini_batch_size=critic.ppo_mini_batch_size or config.mini_batch_size,
        max_token_len=critic.ppo_max_token_len_per_gpu or actor.ppo_max_token_len_per_gpu,
        compute=training_pass(config),
    )
