import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.progress import ProgressView


def step(number: int, *, total: int = 10, seconds: float = 2.0, **metrics: float) -> tuple[str, dict[str, object]]:
    data = {"step": number, "total_steps": total, "metrics": {"timing_s/step": seconds, **metrics}}
    return "step", data


def view_of(*events: tuple[str, dict[str, object]]) -> ProgressView:
    view = ProgressView()
    for kind, data in events:
        view = view.after(kind, data)
    return view


def test_a_step_tells_where_the_run_stands() -> None:
    kind, data = step(0, **{"critic/score/mean": 0.25, "response_length/mean": 30.5})
    view = view_of((kind, data | {"replicas": {"rollout": 2}}))
    assert (view.num_steps, view.total_steps) == (1, 10)
    assert (view.reward_mean, view.completion_tokens) == (0.25, 30.5)
    assert view.replicas == {"rollout": 2}


def test_the_last_step_finishes_the_run() -> None:
    view = view_of(step(9))
    assert view.num_steps == view.total_steps
    assert view.time_left_s == 0


def test_time_left_follows_the_pace_of_the_latest_steps() -> None:
    steady = view_of(*(step(number) for number in range(5)))
    assert steady.time_left_s == pytest.approx(5 * 2.0)
    slower = steady.after(*step(5, seconds=7.0))
    assert 4 * 2.0 < slower.time_left_s < 4 * 7.0


def test_time_left_is_unknown_before_the_first_step() -> None:
    assert view_of(("progress", {"phase": "starting", "total_steps": 10})).time_left_s is None


def test_the_total_is_known_before_the_first_step() -> None:
    view = view_of(("progress", {"phase": "starting", "total_steps": 10}), ("progress", {"phase": "evaluating"}))
    assert (view.phase, view.total_steps) == ("evaluating", 10)


def test_the_first_evaluation_is_before_and_the_latest_after() -> None:
    view = view_of(
        ("eval", {"step": 0, "accuracy": 0.25}),
        ("eval", {"step": 5, "accuracy": 0.5}),
        ("eval", {"step": 9, "accuracy": 1.0}),
    )
    assert (view.accuracy_before, view.accuracy_after) == (0.25, 1.0)


def test_a_new_state_ends_the_phase() -> None:
    view = view_of(("progress", {"phase": "step"}), ("state", {"state": "failed", "reason": "disk full"}))
    assert (view.state, view.reason, view.phase) == ("failed", "disk full", "")
    assert view.after("state", {"state": "queued"}).reason is None


def test_replicas_that_are_not_told_stay() -> None:
    view = view_of(("step", {"step": 0, "replicas": {"rollout": 2}}), step(1))
    assert view.replicas == {"rollout": 2}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["state", "progress", "eval", "checkpoint", "log", "news"]),
            st.dictionaries(st.sampled_from(["state", "phase", "step", "accuracy", "folder", "x"]), st.integers()),
        )
    )
)
def test_no_event_without_its_fields_breaks_the_view(events: list[tuple[str, dict[str, object]]]) -> None:
    assert view_of(*events).num_steps == 0
