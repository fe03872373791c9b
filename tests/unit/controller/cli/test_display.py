import io

import pytest
from rich.console import Console

from controller.cli.display import LINE_EVERY_S, LineDisplay, LiveDisplay, one_line, open_display, panel
from controller.cli.progress import ProgressView

VIEW = ProgressView(
    state="running",
    phase="step",
    num_steps=12,
    total_steps=360,
    reward_mean=0.4123,
    completion_tokens=30.25,
    mean_step_s=0.5,
    replicas={"rollout": 2, "learner": 1},
    accuracy_before=0.34375,
)


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain_console() -> Console:
    return Console(file=io.StringIO(), width=40, force_terminal=False)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_line_says_all_there_is() -> None:
    assert one_line(VIEW) == (
        "step 12/360  reward 0.412  length 30.2  0.50 s/step  replicas learner 1, rollout 2  left 2 min 54 s"
        "  accuracy 0.344 → –"
    )


def test_a_line_of_a_run_that_has_not_begun_is_dashes() -> None:
    assert one_line(ProgressView()) == "step 0/?  reward –  length –  – s/step  replicas –  left –"


def test_lines_are_not_wrapped_and_come_at_a_readable_pace() -> None:
    console, clock = plain_console(), Clock()
    with LineDisplay(console, clock=clock) as display:
        for number in range(1, 12):
            display.show(ProgressView(num_steps=number))
            clock.now += LINE_EVERY_S / 4
    lines = printed(console)
    assert [line.split()[1] for line in lines] == ["1/?", "5/?", "9/?", "11/?"]


def test_steps_are_shown_before_what_came_after_them() -> None:
    console = plain_console()
    with LineDisplay(console, clock=Clock()) as display:
        for number in (1, 2, 3):
            display.show(ProgressView(num_steps=number))
        display.say("run succeeded")
    assert [line[:8] for line in printed(console)] == ["step 1/?", "step 3/?", "run succ"]


def test_nothing_is_repeated_at_the_end() -> None:
    console = plain_console()
    with LineDisplay(console, clock=Clock()) as display:
        display.show(ProgressView(num_steps=1))
    assert len(printed(console)) == 1


def test_a_run_without_steps_prints_no_steps() -> None:
    console = plain_console()
    with LineDisplay(console, clock=Clock()) as display:
        display.show(ProgressView())
        display.say("run queued")
    assert printed(console) == ["run queued"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_display_fits_the_console(is_terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=is_terminal)
    display = open_display(console, "run-0")
    assert isinstance(display, LiveDisplay if is_terminal else LineDisplay)
    with display:
        display.show(VIEW)
        display.say("it goes on")
    assert "it goes on" in console.file.getvalue()


def test_a_panel_shows_the_run_in_place() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(panel("run-0", VIEW))
    shown = " ".join(console.file.getvalue().split())
    for part in ("run-0: training", "12/360", "0.412", "2 min 54 s", "30.2", "0.50 s", "0.344 → –", "rollout 2"):
        assert part in shown


@pytest.mark.parametrize("hostile", ["[red]x[/red]", "\x1b[2Jx", "[/]"])
def test_what_others_wrote_is_text_only(hostile: str) -> None:
    console = plain_console()
    with LineDisplay(console) as display:
        display.say(hostile)
    assert printed(console) == [hostile.replace("\x1b", "�")]
    console.print(panel(hostile, VIEW))
