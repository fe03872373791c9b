"""What identifies a policy: two that compute something else never have the same digest."""

import hashlib
from itertools import product

from shared.contracts.policy import BlobRef, ModelRef, PolicyRef


def blob(content: bytes) -> BlobRef:
    sha256 = hashlib.sha256(content).hexdigest()
    return BlobRef(id=f"run-1/000000/policy-{sha256[:32]}", num_bytes=len(content), sha256=sha256)


def policy(weights: bytes, adapter: bytes | None, version: int = 0) -> PolicyRef:
    return PolicyRef(
        version=version,
        model=ModelRef(path="models/tiny"),
        weights=blob(weights),
        adapter=None if adapter is None else blob(adapter),
    )


def test_weights_alone_are_known_by_their_blob() -> None:
    assert policy(b"a", None).digest == blob(b"a").sha256


def test_every_pair_of_weights_and_adapter_has_a_digest_of_its_own() -> None:
    contents = [b"a", b"b", b"ab", b""]
    pairs = list(product(contents, [*contents, None]))
    assert len({policy(weights, adapter).digest for weights, adapter in pairs}) == len(pairs)


def test_the_version_does_not_change_the_digest() -> None:
    assert policy(b"a", b"b", version=1).digest == policy(b"a", b"b", version=2).digest
