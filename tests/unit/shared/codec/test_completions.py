"""Completions as bytes: what goes in comes out, and what is not a completion is told."""

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray
from safetensors.numpy import save

from shared.codec.completions import (
    TENSORS,
    DamagedCompletion,
    Partial,
    decode_completion,
    decode_partial,
    encode_completion,
    encode_partial,
)
from shared.contracts.completion import Completion, SampleId, Stay

TEXT = st.text(max_size=20)
TIMES = st.floats(min_value=0, max_value=2e9)


STAYS = st.lists(
    st.builds(
        Stay,
        shard=st.integers(0, 10**4),
        instance=TEXT,
        started_at=TIMES,
        first_token_at=st.none() | TIMES,
        ended_at=TIMES,
        num_tokens=st.integers(0, 10**6),
    ),
    max_size=3,
).map(tuple)


def vectors(dtype: DTypeLike, size: int) -> st.SearchStrategy[NDArray[Any]]:
    """Any bits, drawn in a piece: number by number takes seconds."""
    num_bytes = size * np.dtype(dtype).itemsize
    return st.binary(min_size=num_bytes, max_size=num_bytes).map(lambda data: np.frombuffer(data, dtype))


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    num_tokens = draw(st.integers(0, 30))
    return Completion(
        id=SampleId(draw(TEXT), draw(st.integers(0, 10**6))),
        prompt_num_tokens=draw(st.integers(1, 10**6)),
        token_ids=draw(vectors(np.int32, num_tokens)),
        rollout_logprobs=draw(vectors(np.float32, num_tokens)),
        processed_logprobs=draw(vectors(np.float32, num_tokens)),
        loss_mask=draw(vectors(np.uint8, num_tokens)) < 128,
        segments=tuple(draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))),
        finish_reason=draw(st.sampled_from(["stop", "length"])),
        policy_version=draw(st.integers(0, 10**9)),
        weights_digest=draw(TEXT),
        instance=draw(TEXT),
        started_at=draw(TIMES),
        ended_at=draw(TIMES),
        stays=draw(STAYS),
    )


EXAMPLE = Completion(
    id=SampleId("row:7", 3),
    prompt_num_tokens=5,
    token_ids=np.array([1, 2, 3], np.int32),
    rollout_logprobs=np.array([-0.5, -1.5, 0.0], np.float32),
    processed_logprobs=np.array([-0.25, -1.0, 0.0], np.float32),
    loss_mask=np.array([True, True, False]),
    segments=(0, 2),
    finish_reason="length",
    policy_version=4,
    weights_digest="d",
    instance="i",
    started_at=1.25,
    ended_at=2.5,
    stays=(Stay(shard=1, instance="i", started_at=1.25, first_token_at=1.5, ended_at=2.5, num_tokens=3),),
)


PARTIAL = Partial(
    token_ids=EXAMPLE.token_ids,
    rollout_logprobs=EXAMPLE.rollout_logprobs,
    processed_logprobs=EXAMPLE.processed_logprobs,
    loss_mask=EXAMPLE.loss_mask,
    stays=EXAMPLE.stays,
    has_kv=True,
)


def assert_same(one: Completion | Partial, other: Completion | Partial) -> None:
    for field in fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            assert left.tobytes() == right.tobytes()
        else:
            assert left == right, field.name


@given(completions())
def test_a_completion_comes_back_as_it_was(completion: Completion) -> None:
    assert_same(decode_completion(encode_completion(completion)), completion)


def test_arrays_in_another_layout_or_width_are_stored_by_value() -> None:
    wide = np.arange(6, dtype=np.int64)[::2]
    stored = decode_completion(encode_completion(replace(EXAMPLE, token_ids=wide)))
    assert_same(stored, replace(EXAMPLE, token_ids=np.array([0, 2, 4], np.int32)))


@given(completions(), st.booleans())
def test_an_unfinished_completion_comes_back_as_it_was(completion: Completion, has_kv: bool) -> None:
    tensors = {name: getattr(completion, name) for name in TENSORS}
    partial = Partial(**tensors, stays=completion.stays, has_kv=has_kv)
    assert_same(decode_partial(encode_partial(partial)), partial)


@given(st.binary(max_size=300))
def test_other_bytes_are_no_completion(data: bytes) -> None:
    for decode in (decode_completion, decode_partial):
        with pytest.raises(DamagedCompletion):
            decode(data)


@given(st.integers(0, 10**6), st.binary(max_size=8), st.integers(0, 8))
def test_damage_is_told_or_harmless_but_nothing_else_is_raised(at: int, inserted: bytes, num_removed: int) -> None:
    for encoded, decode in (
        (encode_completion(EXAMPLE), decode_completion),
        (encode_partial(PARTIAL), decode_partial),
    ):
        at %= len(encoded)
        try:
            decode(encoded[:at] + inserted + encoded[at + num_removed :])
        except DamagedCompletion:
            continue


@given(st.integers(0, 10**6))
def test_a_completion_that_was_cut_short_is_damaged(num_bytes: int) -> None:
    for encoded, decode in (
        (encode_completion(EXAMPLE), decode_completion),
        (encode_partial(PARTIAL), decode_partial),
    ):
        with pytest.raises(DamagedCompletion):
            decode(encoded[: num_bytes % len(encoded)])


def header(encoded: bytes) -> dict[str, dict[str, str]]:
    length = int.from_bytes(encoded[:8], "little")
    parsed: dict[str, dict[str, str]] = json.loads(encoded[8 : 8 + length])
    return parsed


def with_facts(**changes: object) -> bytes:
    """The example with some of its facts changed, or left out (``...``)."""
    encoded = encode_completion(EXAMPLE)
    parsed = header(encoded)
    facts = json.loads(parsed["__metadata__"]["completion"]) | changes
    parsed["__metadata__"]["completion"] = json.dumps({k: v for k, v in facts.items() if v is not ...})
    text = json.dumps(parsed).encode()
    length = int.from_bytes(encoded[:8], "little")
    return len(text).to_bytes(8, "little") + text + encoded[8 + length :]


def test_unchanged_facts_still_decode() -> None:
    assert_same(decode_completion(with_facts()), EXAMPLE)


@pytest.mark.parametrize(
    "change",
    [
        {"finish_reason": "abort"},
        {"finish_reason": ...},
        {"row_uid": 3},
        {"sample": "x"},
        {"segments": 3},
        {"segments": [0.5]},
        {"segments": {"0": 1}},
        {"segments": "[" * 100_000},
        {"policy_version": 1.5},
        {"policy_version": "9" * 5000},
        {"started_at": "soon"},
        {"weights_digest": ...},
        {"stays": [{"shard": 1}]},
        {"unknown": 1},
    ],
)
def test_facts_of_another_form_are_damage(change: dict[str, object]) -> None:
    with pytest.raises(DamagedCompletion):
        decode_completion(with_facts(**change))


def test_a_completion_of_a_function_that_does_not_say_where_it_ran_is_read() -> None:
    assert_same(decode_completion(with_facts(stays=...)), replace(EXAMPLE, stays=()))


def test_equal_completions_are_equal_bytes() -> None:
    assert len({encode_completion(replace(EXAMPLE)) for _ in range(20)}) == 1


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("damage", ["missing", "wider", "shorter", "of rows"])
def test_tensors_of_another_form_are_damage(name: str, damage: str) -> None:
    tensors = {each: getattr(EXAMPLE, each) for each in TENSORS}
    changes = {
        "wider": tensors[name].astype(np.float64),
        "shorter": tensors[name][:2],
        "of rows": tensors[name][:, None],
    }
    tensors = {key: value for key, value in (tensors | {name: changes.get(damage)}).items() if value is not None}
    with pytest.raises(DamagedCompletion):
        decode_partial(save(tensors, metadata=header(encode_partial(PARTIAL))["__metadata__"]))
    with pytest.raises(DamagedCompletion):
        decode_completion(save(tensors, metadata=header(encode_completion(EXAMPLE))["__metadata__"]))
