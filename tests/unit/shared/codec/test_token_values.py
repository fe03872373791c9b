import numpy as np
import pytest

from shared.codec.token_values import DamagedTokenValues, decode_token_values, encode_token_values
from shared.contracts.completion import SampleId

A, B, C = SampleId("a", 0), SampleId("a", 1), SampleId("b", 0)
RETURNS = {B: np.array([1.0, 2.0], np.float32), A: np.array([0.1], np.float32), C: np.array([], np.float32)}


def test_vectors_come_back_exactly_by_completion() -> None:
    advantages = {id: -values for id, values in RETURNS.items()}
    decoded = decode_token_values(
        encode_token_values({"returns": RETURNS, "advantages": advantages}), ["advantages", "returns"]
    )
    for id, values in RETURNS.items():
        assert np.array_equal(decoded["returns"][id], values)
        assert np.array_equal(decoded["advantages"][id], -values)


def test_equal_values_are_equal_bytes_whatever_their_order() -> None:
    turned = dict(reversed(RETURNS.items()))
    assert encode_token_values({"returns": RETURNS}) == encode_token_values({"returns": turned})


def test_vectors_of_other_completions_are_refused() -> None:
    with pytest.raises(ValueError, match="values is of other completions"):
        encode_token_values({"returns": RETURNS, "values": {A: RETURNS[A]}})
    with pytest.raises(ValueError, match="values is of other completions"):
        encode_token_values({"returns": RETURNS, "values": {**RETURNS, C: np.zeros(1, np.float32)}})


@pytest.mark.parametrize("data", [b"", b"no tensors", encode_token_values({"values": RETURNS})])
def test_bytes_that_do_not_hold_the_vector_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedTokenValues):
        decode_token_values(data, ["returns"])


def test_no_completions_are_no_values() -> None:
    assert decode_token_values(encode_token_values({"returns": {}}), ["returns"]) == {"returns": {}}
