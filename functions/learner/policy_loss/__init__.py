"""Policy losses, one per file, by the name that the config gives."""

from collections.abc import Mapping

from functions.learner.policy_loss.cispo import clipped_weight_policy_loss
from functions.learner.policy_loss.clip import clipped_policy_loss
from functions.learner.policy_loss.gspo import sequence_policy_loss
from functions.learner.policy_loss.inputs import PolicyLossFunction
from shared.contracts.learner import LossMode

POLICY_LOSSES: Mapping[LossMode, PolicyLossFunction] = {
    "vanilla": clipped_policy_loss,
    "gspo": sequence_policy_loss,
    "cispo": clipped_weight_policy_loss,
}
