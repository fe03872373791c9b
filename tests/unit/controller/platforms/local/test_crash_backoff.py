"""Waits after failed starts."""

from controller.platforms.local.crash_backoff import MAX_DELAY_S, CrashBackoff


def test_each_failure_doubles_the_wait() -> None:
    backoff, waits = CrashBackoff(), []
    for _ in range(10):
        backoff = backoff.after_failure(100.0, "exited with code 1")
        waits.append(backoff.not_before - 100.0)
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == MAX_DELAY_S


def test_the_reason_names_the_last_failure_while_it_waits() -> None:
    backoff = CrashBackoff().after_failure(100.0, "exited with code 3")
    assert "exited with code 3" in (backoff.waiting(100.4) or "")
    assert backoff.waiting(100.5) is None
    assert CrashBackoff().waiting(0.0) is None
