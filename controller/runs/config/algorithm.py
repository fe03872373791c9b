"""``algorithm``: from rewards to advantages."""

from controller.runs.config.section import Section
from shared.contracts.learner import AdvantageEstimator


class RunAlgorithmConfig(Section):
    """The advantage estimator."""

    adv_estimator: AdvantageEstimator = "grpo"
    """How advantages are estimated. Default grpo (arXiv 2402.03300): a completion against its own group."""
    norm_adv_by_std_in_grpo: bool = True
    """Whether advantages are divided by their group's standard deviation. Default true, as in GRPO; false is Dr.GRPO
    (arXiv 2503.20783)."""
    filter_groups: bool = False
    """Whether groups whose rewards are all equal are left out of the update, as in DAPO (arXiv 2503.14476) but without
    sampling others in their place. They have no gradient, yet count in its mean. Default false, as in GRPO."""
