"""Named sets of keys: an algorithm as its paper has it. They lie under the user's own keys, which win.

A user's key that stands for several, such as the clip range of both sides, wins over each of them.

What a preset does not name keeps its default. All correct for the engine's numerics (``rollout_is: token``), which
costs nothing in a step of one update.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_CORRECTED: Mapping[str, Any] = {"algorithm.rollout_correction.rollout_is": "token"}

STANDS_FOR: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"actor.clip_ratio": ("actor.clip_ratio_low", "actor.clip_ratio_high")}
)
"""Keys that say at once what others say one by one."""

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # arXiv 2402.03300, without its KL term: a rule cannot be talked into anything.
        "grpo": {
            **_CORRECTED,
            "algorithm.adv_estimator": "grpo",
            "algorithm.norm_adv_by_std_in_grpo": True,
            "actor.loss_agg_mode": "seq-mean-token-mean",
        },
        # arXiv 2503.20783: neither the spread of a group nor the length of a completion weighs.
        "dr_grpo": {
            **_CORRECTED,
            "algorithm.adv_estimator": "grpo",
            "algorithm.norm_adv_by_std_in_grpo": False,
            "actor.loss_agg_mode": "seq-mean-token-sum-norm",
        },
        # arXiv 2503.14476: clip-higher, dynamic sampling, token-level loss, soft overlong punishment.
        "dapo": {
            **_CORRECTED,
            "algorithm.adv_estimator": "grpo",
            "algorithm.filter_groups.enable": True,
            "algorithm.filter_groups.max_num_gen_batches": 10,
            "algorithm.overlong_buffer.enable": True,
            "actor.clip_ratio_low": 0.2,
            "actor.clip_ratio_high": 0.28,
            "actor.loss_agg_mode": "token-mean",
        },
        # arXiv 2402.14740: a completion is one action, so its logprob is the sum of its tokens'.
        "rloo": {
            **_CORRECTED,
            "algorithm.adv_estimator": "rloo",
            "actor.loss_agg_mode": "seq-mean-token-sum",
        },
        # arXiv 2507.18071, section 5.1.
        "gspo": {
            **_CORRECTED,
            "algorithm.adv_estimator": "grpo",
            "actor.policy_loss.loss_mode": "gspo",
            "actor.clip_ratio_low": 3e-4,
            "actor.clip_ratio_high": 4e-4,
            "actor.clip_ratio_c": None,
            "actor.loss_agg_mode": "seq-mean-token-mean",
        },
        # arXiv 2506.13585, with the cap of arXiv 2510.13786.
        "cispo": {
            **_CORRECTED,
            "algorithm.adv_estimator": "grpo",
            "actor.policy_loss.loss_mode": "cispo",
            "actor.clip_ratio_low": 1.0,
            "actor.clip_ratio_high": 4.0,
            "actor.clip_ratio_c": None,
            "actor.loss_agg_mode": "token-mean",
        },
        # arXiv 1707.06347, with the KL penalty of arXiv 2203.02155: against a reward model the reference is the anchor.
        "ppo": {
            **_CORRECTED,
            "algorithm.adv_estimator": "gae",
            "algorithm.lam": 0.95,
            "algorithm.use_kl_in_reward": True,
            "algorithm.kl_penalty": "kl",
            "algorithm.kl_ctrl.kl_coef": 0.05,
            "actor.loss_agg_mode": "token-mean",
        },
        # arXiv 2501.03262: the penalty of each token is what its return is made of, besides the reward.
        "reinforce_plus_plus": {
            **_CORRECTED,
            "algorithm.adv_estimator": "reinforce_plus_plus",
            "algorithm.use_kl_in_reward": True,
            "algorithm.kl_penalty": "kl",
            "algorithm.kl_ctrl.kl_coef": 0.01,
            "actor.loss_agg_mode": "token-mean",
        },
    }
)
