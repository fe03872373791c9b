"""Dotted overrides of the command line."""

import pytest

from controller.runs.config.overrides import parse_overrides


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("rollout.n=16", 16),
        ("rollout.n = 16", 16),
        ("actor.optim.betas=[0.9, 0.98]", [0.9, 0.98]),
        ("data.shuffle=false", False),
        ("data.val_files=null", None),
        ("data.val_files=", None),
        ("data.train_files=[a.jsonl, b.jsonl]", ["a.jsonl", "b.jsonl"]),
        ("model.path=a=b", "a=b"),
        ("trainer.experiment_name=001", "001"),
        ("run_name=2024-01-01", "2024-01-01"),
        ("actor_rollout_ref.model.path=7", "7"),
        ("unheard.of=001", 1),
    ],
)
def test_a_value_is_yaml_and_text_stays_text(assignment: str, value: object) -> None:
    values, problems = parse_overrides([assignment])
    assert not problems
    assert list(values.values()) == [value]


def test_the_last_of_one_key_holds() -> None:
    assert parse_overrides(["rollout.n=2", "seed=1", "rollout.n=3"]) == ({"seed": 1, "rollout.n": 3}, [])


@pytest.mark.parametrize(
    ("assignment", "field"),
    [("rollout.n", "rollout.n"), ("=3", "overrides"), ("", "overrides"), ("data.train_files=[a", "data.train_files")],
)
def test_what_cannot_be_read_is_a_problem(assignment: str, field: str) -> None:
    values, (problem,) = parse_overrides([assignment])
    assert not values
    assert problem.field == field
    assert problem.suggestion


@pytest.mark.parametrize("text", ["2024-13-45", "9" * 5000, "!!timestamp x", "[" * 2000])
def test_text_that_the_library_stumbles_over_is_a_problem_like_any_other(text: str) -> None:
    values, problems = parse_overrides([f"trainer.seed={text}"])
    assert not values
    assert [problem.field for problem in problems] == ["trainer.seed"]
