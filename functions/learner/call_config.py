"""The parameters of a call, out of it."""

from functions.learner.config import LearnerConfig
from shared.contracts.call import StageCall
from shared.contracts.learner import AdvantagesInputs, LearnerInputs, UpdateInputs


def update_inputs(call: StageCall[LearnerInputs]) -> UpdateInputs:
    """The call's inputs; it is an update call."""
    assert isinstance(call.inputs.operation, UpdateInputs)
    return call.inputs.operation


def advantages_inputs(call: StageCall[LearnerInputs]) -> AdvantagesInputs:
    """The call's inputs; it is one for advantages."""
    assert isinstance(call.inputs.operation, AdvantagesInputs)
    return call.inputs.operation


def config_of(call: StageCall[LearnerInputs]) -> LearnerConfig:
    """The config that an update call carries. Raises ``InvalidTrainingConfig``."""
    inputs = update_inputs(call)
    return LearnerConfig.from_contract(inputs.optim, inputs.algorithm, inputs.temperature, inputs.kl_coef)
