"""Which states go on by themselves, and which a user may resume."""

from controller.runs.state import PENDING, RunState


def test_a_state_is_pending_or_terminal_never_both() -> None:
    assert {state for state in RunState if not state.is_terminal} == set(PENDING)


def test_success_is_the_only_end_that_is_not_resumed() -> None:
    assert {state for state in RunState if state.is_terminal and not state.is_resumable} == {RunState.SUCCEEDED}
    assert not RunState.QUEUED.is_resumable
    assert not RunState.RUNNING.is_resumable
