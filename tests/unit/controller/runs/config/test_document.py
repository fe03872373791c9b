"""The text of a config file."""

import pytest

from controller.runs.config.document import parse_document
from controller.runs.config.problems import ConfigInvalid


def test_yaml_and_json_are_read() -> None:
    assert parse_document("rollout:\n  n: 8\n") == parse_document('{"rollout": {"n": 8}}') == {"rollout": {"n": 8}}


def test_an_empty_file_is_an_empty_document() -> None:
    assert parse_document("# nothing\n") == {}


def test_a_merged_key_may_be_given_again() -> None:
    assert parse_document("a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n")["b"] == {"x": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rollout:\n  n: 8\n  n: 4\n", "line 3 is not readable: n is given twice"),
        ("a: 1\nb: [\n", "line 3"),
        ("- 1\n", "not a mapping"),
        ("a: !!python/object/apply:os.getcwd []", "line 1"),
        ("? [1, 2]\n: 3", "line 1"),
        ("a: \x01", "not readable"),
    ],
)
def test_what_is_no_mapping_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_document(text)
    (problem,) = caught.value.problems
    assert words in problem.reason
    assert problem.suggestion
