"""Planning is measured on plans that mean something."""

from scripts.benchmarks.scheduling import CASES, Case, measure, observations


def test_a_case_says_what_was_planned() -> None:
    case = measure(Case(32, 16), repeats=2, group_size=4)
    assert case["name"] == "32 prompts on 16 GPUs"
    assert 0 < case["plan_ms_min"] <= case["plan_ms"] <= case["plan_ms_max"]
    assert case["num_candidates"] == 8
    assert 1 <= case["num_actors"] <= 8
    assert case["unit_s"] > case["time_s"] > 0


def test_the_smallest_case_is_first_and_the_same_every_time() -> None:
    assert [case.num_prompts for case in CASES] == sorted(case.num_prompts for case in CASES)
    assert observations(CASES[0], 2) == observations(CASES[0], 2)
