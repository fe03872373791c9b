"""What must hold between the keys of an algorithm. Each rule is a pure function of the values it names."""

from collections.abc import Callable, Sequence

from controller.runs.config.actor import DEFAULT_CLIP, DEFAULT_DUAL_CLIP
from controller.runs.config.rule import Broken, Rule

GROUP_ESTIMATORS = ("grpo", "rloo", "reinforce_plus_plus_baseline")
"""They compare the completions of one prompt."""


def group_of_several(n: int, adv_estimator: str) -> Broken | None:
    """A group's baseline is its own mean: the advantage of a lone completion is always 0."""
    if adv_estimator in GROUP_ESTIMATORS and n < 2:
        return Broken(
            f"{adv_estimator} compares the completions of one prompt, and a group of 1 has nothing to compare",
            "use at least 2; 8 is common",
        )
    return None


def groups_can_differ(enable: bool, n: int) -> Broken | None:
    """The rewards of a lone completion are always equal."""
    if enable and n < 2:
        return Broken(
            "a group of 1 (rollout.n) has equal rewards: all would be left out", "raise rollout.n, or leave it out"
        )
    return None


def buffer_fits(length: int | None, longest: int) -> Broken | None:
    """The overlong penalty begins within a completion."""
    if length is not None and length > longest:
        return Broken(f"completions have at most {longest} tokens (data.max_response_length)", f"use at most {longest}")
    return None


def kl_loss_counts(use: bool, coef: float) -> Broken | None:
    """A KL term that is asked for has a weight."""
    return _zero_weight("actor.kl_loss_coef") if use and coef == 0 else None


def kl_reward_counts(use: bool, coef: float) -> Broken | None:
    """A KL penalty that is asked for has a coefficient."""
    return _zero_weight("algorithm.kl_ctrl.kl_coef") if use and coef == 0 else None


def _zero_weight(key: str) -> Broken:
    return Broken(
        f"with {key} at 0 it has no effect, and the reference would be asked for nothing",
        f"give {key}, or leave both out",
    )


def kl_coefficient_stays_positive(horizon: int, kind: str, batch: int, n: int) -> Broken | None:
    """One step changes an adaptive coefficient by less than all of it."""
    if kind == "adaptive" and 5 * horizon <= batch * n:
        return Broken(
            f"a step of {batch * n} completions could take the coefficient to 0 or below at once",
            f"use more than {batch * n // 5}; 10000 is common",
        )
    return None


def no_dual_clip(clip_ratio_c: float | None, loss_mode: str) -> Broken | None:
    """CISPO bounds the weight itself."""
    if loss_mode == "cispo" and clip_ratio_c not in (None, DEFAULT_DUAL_CLIP):
        return Broken("cispo has no dual clip: actor.clip_ratio_high bounds the weight on both sides", "leave it out")
    return None


def clip_ratio_holds(both: float, low: float | None, high: float | None) -> Broken | None:
    """A clip range is that of some side, unless it is the default."""
    if low is None or high is None or both in (DEFAULT_CLIP, low, high):
        return None
    return Broken(
        "it has no effect beside actor.clip_ratio_low and actor.clip_ratio_high", "leave it out, or one of the two"
    )


def _idle(key: str, values: Sequence[object], switch: str, active: Callable[[object], bool], suggestion: str) -> Rule:
    """Refuses a key that has no effect as another one stands, but for values that say nothing: defaults and 0."""

    def check(value: object, state: object) -> Broken | None:
        if active(state) or any(value == idle for idle in values):
            return None
        shown = "null" if state is None else str(state).lower() if isinstance(state, bool) else str(state)
        return Broken(f"it has no effect while {switch} is {shown}", suggestion)

    return Rule((key, switch), check, is_idle=True)


def _on(state: object) -> bool:
    return bool(state)


def _one_of(*states: str) -> Callable[[object], bool]:
    return lambda state: state in states


_KL_REWARD = ("algorithm.use_kl_in_reward", _on, "set algorithm.use_kl_in_reward to true, or leave it out")
_KL_LOSS = ("actor.use_kl_loss", _on, "set actor.use_kl_loss to true, or leave it out")
_ADAPTIVE = ("algorithm.kl_ctrl.type", _one_of("adaptive"), "set algorithm.kl_ctrl.type to adaptive, or leave it out")
_OVERLONG = ("algorithm.overlong_buffer.enable", _on, "set algorithm.overlong_buffer.enable to true, or leave it out")
_ESTIMATOR = "algorithm.adv_estimator"

ALGORITHM_RULES: tuple[Rule, ...] = (
    Rule(("rollout.n", _ESTIMATOR), group_of_several),
    Rule(("algorithm.filter_groups.enable", "rollout.n"), groups_can_differ),
    Rule(("algorithm.overlong_buffer.len", "data.max_response_length"), buffer_fits),
    Rule(("actor.use_kl_loss", "actor.kl_loss_coef"), kl_loss_counts),
    Rule(("algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef"), kl_reward_counts),
    Rule(
        ("algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.type", "data.train_batch_size", "rollout.n"),
        kl_coefficient_stays_positive,
    ),
    Rule(("actor.clip_ratio", "actor.clip_ratio_low", "actor.clip_ratio_high"), clip_ratio_holds, is_idle=True),
    Rule(("actor.clip_ratio_c", "actor.policy_loss.loss_mode"), no_dual_clip),
    _idle("algorithm.norm_adv_by_std_in_grpo", (True,), _ESTIMATOR, _one_of("grpo"), "leave it out: only grpo divides"),
    _idle(
        "algorithm.gamma",
        (1.0,),
        _ESTIMATOR,
        _one_of("gae", "reinforce_plus_plus"),
        "leave it out: a group's reward is not discounted",
    ),
    _idle("algorithm.lam", (1.0,), _ESTIMATOR, _one_of("gae"), "leave it out, or use gae, which has a critic"),
    _idle("algorithm.kl_penalty", ("kl",), *_KL_REWARD),
    _idle("algorithm.kl_ctrl.type", ("fixed",), *_KL_REWARD),
    _idle("algorithm.kl_ctrl.kl_coef", (0.001, 0), *_KL_REWARD),
    _idle("algorithm.kl_ctrl.horizon", (10_000,), *_ADAPTIVE),
    _idle("algorithm.kl_ctrl.target_kl", (0.1,), *_ADAPTIVE),
    _idle("actor.kl_loss_coef", (0.001, 0), *_KL_LOSS),
    _idle("actor.kl_loss_type", ("low_var_kl",), *_KL_LOSS),
    _idle("algorithm.overlong_buffer.len", (None,), *_OVERLONG),
    _idle("algorithm.overlong_buffer.penalty_factor", (1.0,), *_OVERLONG),
    _idle(
        "algorithm.filter_groups.max_num_gen_batches",
        (0,),
        "algorithm.filter_groups.enable",
        _on,
        "set algorithm.filter_groups.enable to true, or leave it out",
    ),
    _idle(
        "algorithm.rollout_correction.rollout_is_threshold",
        (2.0,),
        "algorithm.rollout_correction.rollout_is",
        _on,
        "set algorithm.rollout_correction.rollout_is to token or sequence, or leave it out",
    ),
)
