"""What the critic is told of a run's config, as its contract."""

from controller.runs.config.model_to_wire import training_pass
from controller.runs.config.run_config import RunConfig
from shared.contracts.critic import ValueUpdateConfig
from shared.contracts.learner import OptimConfig


def critic_optim_config(config: RunConfig, total_steps: int) -> OptimConfig:
    """AdamW and its schedule over the run's ``total_steps``."""
    optim = config.critic.optim
    return OptimConfig(
        lr=optim.lr,
        lr_scheduler_type=optim.lr_scheduler_type,
        lr_warmup_steps=optim.lr_warmup_steps,
        min_lr_ratio=optim.min_lr_ratio,
        total_steps=total_steps,
        betas=optim.betas,
        eps=optim.eps,
        weight_decay=optim.weight_decay,
        grad_clip=config.critic.grad_clip,
    )


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
