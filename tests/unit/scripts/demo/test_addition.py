"""The demo's task and its data: right scratchpads, right answers, no held-out problem in any training set."""

import json

import pytest

from functions.reward.rules.exact_number import exact_number
from scripts.demo.addition import ALPHABET, MAX_COMPLETION_CHARACTERS, Addition, heldout_additions, sample_additions
from scripts.demo.make_data import DATA, NUM_TRAIN, make_data
from scripts.demo.make_warm_start import NUM_DEMONSTRATIONS, demonstrations


@pytest.mark.parametrize(
    ("problem", "demonstration"),
    [
        (Addition(966, 358), "6+8+0=14,6+5+1=12,9+3+1=13#1324"),
        (Addition(100, 204), "0+4+0=4,0+0+0=0,1+2+0=3#304"),
        (Addition(999, 999), "9+9+0=18,9+9+1=19,9+9+1=19#1998"),
    ],
)
def test_the_scratchpad_goes_digit_by_digit(problem: Addition, demonstration: str) -> None:
    assert problem.demonstration == demonstration


def test_every_demonstration_is_rewarded() -> None:
    for problem in sample_additions(500, seed=5):
        demonstration = problem.demonstration
        assert exact_number(demonstration, problem.answer, problem.prompt, {}).reward == 1.0
        assert eval(problem.prompt.removesuffix(":")) == int(problem.answer)
        assert len(demonstration) <= MAX_COMPLETION_CHARACTERS
        assert set(problem.prompt + demonstration) <= set(ALPHABET)


def test_problems_are_distinct_and_reproducible() -> None:
    problems = sample_additions(2_000, seed=3)
    assert problems == sample_additions(2_000, seed=3)
    assert problems != sample_additions(2_000, seed=4)
    assert len(set(problems)) == 2_000
    assert not set(sample_additions(2_000, seed=3, excluded=problems[:1_000])) & set(problems[:1_000])


def test_no_heldout_problem_is_trained_on() -> None:
    heldout = {problem.prompt for problem in heldout_additions()}
    assert len(heldout) == 256
    trained = {json.loads(line)["prompt"] for line in (DATA / "train.jsonl").read_text().splitlines()}
    assert len(trained) == NUM_TRAIN
    assert not heldout & trained
    shown = {problem.prompt for problem in demonstrations()}
    assert len(shown) == NUM_DEMONSTRATIONS
    assert not heldout & shown


def test_the_shipped_data_is_what_the_script_makes(tmp_path) -> None:
    make_data(tmp_path)
    for name in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes()
    first = json.loads((DATA / "heldout.jsonl").read_text().splitlines()[0])
    problem = heldout_additions()[0]
    assert first == {"prompt": problem.prompt, "answer": problem.answer, "data_source": "addition"}
