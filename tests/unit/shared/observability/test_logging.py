"""Logs as JSON lines."""

import json
import logging
import sys

import pytest

from shared.observability.logging import JsonFormatter, log_to_stderr


def record(message: str = "hello", *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("some.module", logging.INFO, "file.py", 1, message, arguments, None)
    vars(made).update(extra)
    return made


def test_a_line_has_what_a_reader_filters_by() -> None:
    made = record("step %d of %s", 3, "run-1", run="run-1", step=3, stage="reward", code="call_busy", other="left out")
    line = JsonFormatter(instance="reward-1").format(made)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": made.created,
        "level": "info",
        "logger": "some.module",
        "message": "step 3 of run-1",
        "instance": "reward-1",
        "run": "run-1",
        "step": 3,
        "stage": "reward",
        "code": "call_busy",
    }


def test_an_exception_stays_on_its_line() -> None:
    made = record()
    try:
        raise ZeroDivisionError("deep inside")
    except ZeroDivisionError:
        made.exc_info = sys.exc_info()
    line = JsonFormatter().format(made)
    assert "\n" not in line
    assert "ZeroDivisionError: deep inside" in json.loads(line)["exception"]


def test_a_line_is_not_lost_for_what_is_in_it() -> None:
    line = JsonFormatter().format(record("\ud800 \n", run={1, 2}, step=float("nan")))
    assert json.loads(line)["run"] == "{1, 2}"


@pytest.fixture
def _loggers_as_before() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_loggers_as_before")
def test_the_process_logs_to_stderr_from_the_given_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("WARNING", instance="reward-1")
    logging.getLogger("some.module").info("not this")
    logging.getLogger("some.module").warning("this")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [json.loads(line)["message"] for line in captured.err.splitlines()] == ["this"]
