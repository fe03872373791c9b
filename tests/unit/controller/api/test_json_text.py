import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.json_text import MAX_DEPTH, MAX_VALUES, NotJson, fault_of, parse_json, presentable

clean_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | clean_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(clean_text, inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_json_is_read_as_it_was_written(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@given(st.binary(max_size=64))
def test_any_bytes_are_json_or_refused(body: bytes) -> None:
    try:
        value = parse_json(body)
    except NotJson:
        return
    assert fault_of(value) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{'a': 1}", "line 1, column 2"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e999}', "not finite"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' twice"),
        (b'{"\\ud800": 1, "\\ud800": 3}', "'?' twice"),
        (b'{"a": "x\\u0000y"}', "null character"),
        (b'{"a": "\\ud800"}', "half a character"),
        (b'{"\\udc00": 1}', "half a character"),
        (b"1" * 5000, "too long"),
        (b"1" * 400, "too long"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "levels"),
        (b"[" * 100_000, "levels"),
        (json.dumps([0] * MAX_VALUES).encode(), "values"),
    ],
)
def test_what_json_cannot_hold_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(NotJson, match=said):
        parse_json(body)


def test_the_deepest_allowed_document_is_read() -> None:
    parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)


def test_a_value_that_contains_itself_has_a_fault() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert "levels" in str(fault_of(loop))


def test_a_small_value_that_unfolds_to_a_huge_one_has_a_fault() -> None:
    value: list[object] = []
    for _ in range(MAX_DEPTH - 2):
        value = [value, value]
    assert "values" in str(fault_of(value))


def test_what_json_cannot_show_is_replaced() -> None:
    value = {"a": [math.nan, 1.5, -math.inf], "\ud800": "x\udfffy", 3: (True, None)}
    assert presentable(value) == {"a": [None, 1.5, None], "?": "x?y", "3": [True, None]}
