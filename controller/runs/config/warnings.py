"""What a run is asked for that works, but seldom as meant. Said where the config is checked, and in the run's log."""

from controller.runs.config.run_config import RunConfig


def warnings_of(config: RunConfig) -> tuple[str, ...]:
    """One line each; none for most configs."""
    return _truncated_sampling(config) + _kl_without_gradient(config)


def _truncated_sampling(config: RunConfig) -> tuple[str, ...]:
    """Completions are then drawn from another distribution than the one that is trained.

    A kept token is drawn more often than the policy says: the ratio of the two is the mass that was kept. That is
    little below 1 per token, but in sequence-level weights it is a product over all of them.
    """
    rollout = config.rollout
    cut = [
        name
        for name, restricts in (
            (f"rollout.top_p {rollout.top_p:g}", rollout.top_p < 1),
            (f"rollout.top_k {rollout.top_k}", rollout.top_k > 0),
        )
        if restricts
    ]
    if not cut:
        return ()
    return (
        f"warning: with {' and '.join(cut)}, training completions are drawn from a truncated distribution and not from "
        "the policy that is trained: every token's ratio is off by the mass that is cut, and weights of whole "
        "sequences collapse. Use top_p 1 and top_k -1; rollout.val_kwargs may truncate",
    )


def _kl_without_gradient(config: RunConfig) -> tuple[str, ...]:
    """k1 estimates the KL without bias, but over samples of the policy itself its gradient is 0 in the mean."""
    actor = config.actor
    if not actor.use_kl_loss or actor.kl_loss_type != "kl":
        return ()
    return (
        "warning: with actor.kl_loss_type kl the KL term has no gradient in the mean and only adds noise: nothing "
        "holds the policy to the reference. Use low_var_kl or mse, or algorithm.use_kl_in_reward",
    )
