"""Which function a call goes to where two serve its stage."""

from controller.platforms.stage_routing import function_of
from shared.contracts.stage import Stage

APART = {"learner": (Stage.LEARNER,), "rollout": (Stage.ROLLOUT,)}
SHARED = {"learner": (Stage.LEARNER, Stage.PREFILL, Stage.ROLLOUT), "rollout": (Stage.ROLLOUT,)}


def test_a_stage_has_a_function_of_its_own() -> None:
    assert function_of(SHARED, Stage.ROLLOUT) == "rollout"


def test_a_call_beside_the_learner_goes_to_its_process() -> None:
    assert function_of(SHARED, Stage.ROLLOUT, beside=Stage.LEARNER) == "learner"


def test_a_place_that_is_not_there_is_not_insisted_on() -> None:
    assert function_of(APART, Stage.ROLLOUT, beside=Stage.LEARNER) == "rollout"


def test_the_learners_function_serves_what_nobody_else_does() -> None:
    assert function_of(SHARED, Stage.PREFILL) == "learner"


def test_no_function_is_made_up() -> None:
    assert function_of(APART, Stage.CRITIC) is None
