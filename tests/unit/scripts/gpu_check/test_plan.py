"""Bounds: sections fit the budget in order, and none is begun that could not end."""

from scripts.gpu_check.plan import BUDGET_S, SECTIONS, Section, allowed_s, small_sections

SECTION = Section(module="machine", shape="", device="cuda", limit_s=80)


def test_a_section_takes_its_own_limit_while_there_is_time() -> None:
    assert allowed_s(SECTION, elapsed_s=0.0) == 80


def test_the_last_section_takes_what_is_left() -> None:
    assert allowed_s(SECTION, elapsed_s=BUDGET_S - 30.0) == 30.0


def test_a_section_is_left_out_when_too_little_is_left() -> None:
    assert allowed_s(SECTION, elapsed_s=BUDGET_S - 10.0) == 0.0
    assert allowed_s(SECTION, elapsed_s=BUDGET_S + 10.0) == 0.0


def test_the_budget_is_less_than_eight_minutes() -> None:
    assert BUDGET_S < 480


def test_the_small_form_has_every_module() -> None:
    assert {section.module for section in small_sections("float32")} == {section.module for section in SECTIONS}
    assert all(section.device == "cpu" for section in small_sections("float32"))
