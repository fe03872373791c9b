"""What identifies a policy, and what is computed with it."""

import pytest
from pydantic import ValidationError

from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prefill import PrefixKvScope


def blob(letter: str) -> BlobRef:
    return BlobRef(id=f"run-1/000000/{letter}", num_bytes=1, sha256=letter * 64)


def policy(weights: str, adapter: str | None = None, version: int = 0) -> PolicyRef:
    return PolicyRef(
        version=version,
        model=ModelRef(path="/models/tiny"),
        weights=blob(weights),
        adapter=None if adapter is None else blob(adapter),
    )


def test_other_weights_or_another_adapter_are_another_policy() -> None:
    digests = [policy(*parts).digest for parts in (("a",), ("b",), ("a", "c"), ("a", "d"), ("b", "c"), ("c", "a"))]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 64 for digest in digests)


def test_a_version_is_a_number_and_not_what_is_computed_with() -> None:
    assert policy("a", version=3).digest == policy("a", version=4).digest


def test_float32_goes_without_saying_so_that_builds_that_know_no_other_read_it() -> None:
    exact = policy("a")
    rounded = exact.model_copy(update={"dtype": "bfloat16"})
    assert "dtype" not in exact.model_dump(mode="json")
    assert rounded.model_dump(mode="json")["dtype"] == "bfloat16"
    for each in (exact, rounded):
        assert PolicyRef.model_validate_json(each.model_dump_json()) == each
    with pytest.raises(ValidationError, match="float16"):
        PolicyRef.model_validate(exact.model_dump() | {"dtype": "float16"})


@pytest.mark.parametrize(
    ("dtype", "adapter", "is_rounded"),
    [("float32", None, False), ("bfloat16", None, True), ("bfloat16", "c", False), ("float32", "c", False)],
)
def test_weights_that_are_trained_are_rounded_and_an_adapter_is_not(
    dtype: str, adapter: str | None, is_rounded: bool
) -> None:
    assert policy("a", adapter).model_copy(update={"dtype": dtype}).is_rounded == is_rounded


def test_a_prefix_is_stored_for_one_policy_tokenizer_precision_and_layout() -> None:
    """None of these may be left out, and no version number stands for the weights."""
    complete = {
        "weights_digest": policy("a", "c").digest,
        "tokenizer_fingerprint": "t" * 64,
        "dtype": "float32",
        "layout": "l2-k2-d8-float32",
    }
    assert PrefixKvScope(**complete).weights_digest != policy("a").digest
    for name in complete:
        with pytest.raises(ValidationError, match=name):
            PrefixKvScope(**{other: value for other, value in complete.items() if other != name})
    with pytest.raises(ValidationError, match="policy_version"):
        PrefixKvScope(**complete, policy_version=3)
