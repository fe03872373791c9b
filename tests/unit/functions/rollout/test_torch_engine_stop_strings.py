"""A stop string is found with the very token that completes it, however tokens cut it."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from functions.rollout.torch_engine.stop_strings import UNFINISHED, StopSearch
from shared.modeling.tokenizer import Tokenizer
from tests.unit.functions.rollout.toy_tokenizers import byte_tokenizer, sentence_piece_tokenizer

BYTES = byte_tokenizer([("<", "c"), ("<c", ">"), (">", "a"), ("Ã", "©"), ("a", "Ã")])
PIECES = sentence_piece_tokenizer()
STOPS = st.lists(
    st.sampled_from(["a", "ab", "aa", " a", "b a", "<c>", "</c>", "c>a", "é", "éa", "é<", "€"]), min_size=1
)


def ids_of(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    return [tokenizer.fast.token_to_id(token) for token in tokens]


def texts(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[str]:
    """The whole text after each token."""
    decode = tokenizer.decode
    return [decode(token_ids[: length + 1], skip_special_tokens=False) for length in range(len(token_ids))]


def completions_by_hand(stop: Sequence[str], texts: Sequence[str]) -> list[bool]:
    """Whether each token makes a text with a stop string that reaches beyond what was there and whole before."""
    completed, before = [], ""
    for text in texts:
        known = len(before.rstrip(UNFINISHED))
        completed.append(any(text.startswith(s, at) and at + len(s) > known for s in stop for at in range(len(text))))
        before = text
    return completed


def search(tokenizer: Tokenizer, stop: Sequence[str], token_ids: Sequence[int]) -> list[str | None]:
    found = StopSearch(stop, lambda ids: tokenizer.decode(ids, skip_special_tokens=False))
    return [found.add(token_id) for token_id in token_ids]


BYTE_IDS = st.lists(
    st.sampled_from(
        [0, *ids_of(BYTES, "a", "b", "Ġ", "<", "c", ">", "/", "<c", "<c>", ">a", "Ã", "©", "Ã©", "aÃ", "â", "Ĥ", "¬")]
    )
)
PIECE_IDS = st.lists(
    st.sampled_from(
        [*range(13), *ids_of(PIECES, "<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "<0xAC>", "<0x61>", "<0x20>", "<0x3C>")]
    )
)


@given(STOPS, BYTE_IDS)
@example(["é"], ids_of(BYTES, "a", "Ã", "©"))
@example(["éa"], ids_of(BYTES, "Ã", "©", "a"))
@example(["a"], ids_of(BYTES, "aÃ", "©"))
@example(["€"], ids_of(BYTES, "â", "Ĥ", "¬"))
@example(["a"], ids_of(BYTES, "Ã", "a", "Ã", "Ã", "a"))
def test_bytes(stop: list[str], token_ids: list[int]) -> None:
    expected = completions_by_hand(stop, texts(BYTES, token_ids))
    assert [found is not None for found in search(BYTES, stop, token_ids)] == expected


@given(STOPS, PIECE_IDS)
@example(["é"], ids_of(PIECES, "a", "<0xC3>", "<0xA9>"))
@example(["a"], ids_of(PIECES, "▁", "▁a", "a"))
@example([" a"], ids_of(PIECES, "▁a", "▁a"))
def test_pieces(stop: list[str], token_ids: list[int]) -> None:
    expected = completions_by_hand(stop, texts(PIECES, token_ids))
    assert [found is not None for found in search(PIECES, stop, token_ids)] == expected


@given(STOPS, BYTE_IDS, st.integers(0, 8))
def test_a_search_that_follows_goes_on_like_the_one_before(stop: list[str], token_ids: list[int], cut: int) -> None:
    found = StopSearch(stop, lambda ids: BYTES.decode(ids, skip_special_tokens=False))
    found.follow(token_ids[:cut])
    assert [found.add(token_id) for token_id in token_ids[cut:]] == search(BYTES, stop, token_ids)[cut:]


def test_the_stop_string_that_was_found_is_named() -> None:
    token_ids = ids_of(BYTES, "a", "<c", ">a", "b")
    assert search(BYTES, ["</c>", "<c>", "b"], token_ids) == [None, None, "<c>", "b"]


def test_a_special_token_can_be_stopped_at() -> None:
    assert search(BYTES, ["<eos>"], [*ids_of(BYTES, "a"), 0]) == [None, "<eos>"]


def test_another_turn_does_not_go_on_with_the_text_of_the_last() -> None:
    found = StopSearch(["ab"], lambda ids: BYTES.decode(ids, skip_special_tokens=False))
    a, b = ids_of(BYTES, "a", "b")
    assert found.add(a) is None
    found.restart()
    assert [found.add(b), found.add(a), found.add(b)] == [None, None, "ab"]


@pytest.mark.parametrize("stop", ["x", "xyz"])
def test_text_without_an_end_is_not_kept(stop: str) -> None:
    found = StopSearch([stop], lambda ids: BYTES.decode(ids))
    for _ in range(500):
        found.add(ids_of(BYTES, "a")[0])
    assert len(found._before) < len(stop)
    assert len(found._window) == 1
