"""Failures of a call and their wire form."""

from shared.contracts import errors
from shared.contracts.errors import STAGE_ERRORS, CallBusy, Problem, StageError, StoreRefused


def test_every_failure_has_a_code_of_its_own_and_is_found_by_it() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StageError)]
    assert len(kinds) > 10
    assert {kind.code: kind for kind in kinds} == STAGE_ERRORS


def test_functions_never_answer_for_the_platform() -> None:
    assert not {502, 503, 504} & {kind.status for kind in STAGE_ERRORS.values()}


def test_a_failure_travels_with_its_details() -> None:
    problem = StoreRefused("too much: free some", used_bytes=3).problem()
    assert Problem.model_validate_json(problem.model_dump_json()) == problem
    assert problem.code == "store_refused"
    assert problem.details == {"used_bytes": 3}
    assert not problem.retryable
    assert CallBusy("come back").problem().retryable
