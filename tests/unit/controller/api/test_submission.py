import json

import pytest

from controller.api.json_text import NotJson
from controller.api.submission import MAX_BRACKETS, MAX_OVERRIDE_CHARS, MAX_OVERRIDES, Submission, parse_submission
from controller.runs.config.problems import ConfigInvalid


def body(content: object) -> bytes:
    return json.dumps(content).encode()


def test_a_bare_document_is_a_submission() -> None:
    assert parse_submission(body({"rollout": {"n": 4}})) == Submission(document={"rollout": {"n": 4}})


def test_overrides_stand_beside_the_config() -> None:
    content = {"config": {"rollout": {"n": 4}}, "overrides": ["rollout.n=8", "data.train_files=[a.jsonl, b.jsonl]"]}
    expected = Submission(document=content["config"], overrides=tuple(content["overrides"]))
    assert parse_submission(body(content)) == expected


@pytest.mark.parametrize("content", [[], 3, None, "text", True])
def test_a_body_that_is_no_object_is_refused(content: object) -> None:
    with pytest.raises(NotJson, match="not a JSON object"):
        parse_submission(body(content))


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"config": []}, "config"),
        ({"config": None}, "config"),
        ({"config": {}, "overrides": "rollout.n=8"}, "overrides"),
        ({"config": {}, "overrides": [8]}, "overrides"),
        ({"config": {}, "overrides": ["a=1"] * (MAX_OVERRIDES + 1)}, "overrides"),
        ({"config": {}, "overrides": [f"a={'x' * MAX_OVERRIDE_CHARS}"]}, "overrides"),
        ({"config": {}, "rollout": {"n": 8}}, "rollout"),
        ({"config": {}, "overrides": [f"a.b={'[' * 2000}"]}, "a.b"),
        ({"config": {}, "overrides": [f"trainer.seed=0x{'f' * 9000}"]}, "trainer.seed"),
        ({"config": {}, "overrides": ["a.b=&x [*x]"]}, "a.b"),
        ({"config": {}, "overrides": ['model.path="a\\0b"']}, "model.path"),
        ({"config": {}, "overrides": ['model.path="\\ud800"']}, "model.path"),
        ({"config": {}, "overrides": ["actor.optim.lr=.nan"]}, "actor.optim.lr"),
    ],
)
def test_each_problem_names_its_field(content: object, field: str) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        parse_submission(body(content))
    assert [problem.field for problem in raised.value.problems] == [field]


def test_a_bomb_of_references_is_refused() -> None:
    levels = ["a: &l0 [x, x]"] + [f"l{level}: &l{level} [*l{level - 1}, *l{level - 1}]" for level in range(1, 22)]
    bomb = "a.b={" + ", ".join(levels) + "}"
    with pytest.raises(ConfigInvalid, match="values"):
        parse_submission(body({"config": {}, "overrides": [bomb]}))


def test_an_override_with_more_brackets_than_a_value_has_is_not_even_read() -> None:
    with pytest.raises(ConfigInvalid, match="brackets"):
        parse_submission(body({"config": {}, "overrides": [f"a.b=[{'[],' * MAX_BRACKETS}]"]}))


def test_an_override_that_the_config_parser_refuses_is_left_to_it() -> None:
    assert parse_submission(body({"config": {}, "overrides": ["no equals sign", "a=["]})).overrides
