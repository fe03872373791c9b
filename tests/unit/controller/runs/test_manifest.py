"""The head of a run names all that must be kept, and survives being stored."""

import hashlib

import pytest
from pydantic import ValidationError

from controller.runs.manifest import Checkpointed, Manifest, named_blobs, with_blobs
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef


def ref(name: str) -> BlobRef:
    return BlobRef(id=f"run/000001/{name}", num_bytes=3, sha256=hashlib.sha256(name.encode()).hexdigest())


def policy(version: int) -> PolicyRef:
    return PolicyRef(version=version, model=ModelRef(path="/models/tiny"), weights=ref(f"weights-{version}"))


HEAD = Manifest(
    step=5,
    data_cursor=20,
    policy=policy(5),
    state=ref("state-5"),
    previous_policy=policy(4),
    run_seed=7,
    evaluated=(0, 5),
    checkpoints=(
        Checkpointed(step=2, folder="/c/global_step_2", policy=policy(2), state=ref("state-2")),
        Checkpointed(step=3, folder="/c/global_step_3", policy=policy(3), state=None),
    ),
)


def test_the_head_the_version_before_and_the_checkpoints_are_kept() -> None:
    names = {id.rpartition("/")[2] for id in HEAD.kept_blobs()}
    assert names == {"weights-5", "state-5", "weights-4", "weights-2", "state-2", "weights-3"}


def test_a_first_head_keeps_its_weights() -> None:
    first = Manifest(step=0, data_cursor=0, policy=policy(0), state=None, run_seed=7)
    assert first.kept_blobs() == {"run/000001/weights-0"}


def test_stored_and_read_again_it_is_the_same_byte_by_byte() -> None:
    stored = HEAD.model_dump_json()
    assert Manifest.model_validate_json(stored) == HEAD
    assert Manifest.model_validate_json(stored).model_dump_json() == stored


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="optimizer"):
        Manifest.model_validate(HEAD.model_dump() | {"optimizer": 1})


FULL = HEAD.model_copy(
    update={
        "critic": PolicyRef(version=5, model=ModelRef(path="/models/critic"), weights=ref("critic-5")),
        "critic_state": ref("critic-state-5"),
        "reference": policy(0),
        "earlier_history": ref("history"),
        "kl_coef": 0.05,
        "leftover_rows": ("train-000003.e0",),
    }
)


def test_whatever_the_head_names_is_kept() -> None:
    added = {"critic-5", "critic-state-5", "weights-0", "history"}
    assert {id.rpartition("/")[2] for id in FULL.kept_blobs() - HEAD.kept_blobs()} == added
    assert Manifest.model_validate_json(FULL.model_dump_json()) == FULL


def test_blobs_are_named_by_their_place_in_the_head() -> None:
    named = {name: blob.id.rpartition("/")[2] for name, blob in named_blobs(FULL).items()}
    assert named == {
        "critic.weights": "critic-5",
        "critic_state": "critic-state-5",
        "policy.weights": "weights-5",
        "reference.weights": "weights-0",
        "state": "state-5",
    }


def test_every_named_blob_can_be_replaced() -> None:
    moved = with_blobs(FULL, {name: ref(f"moved-{name}") for name in named_blobs(FULL)})
    assert {name: blob.id.rpartition("/")[2] for name, blob in named_blobs(moved).items()} == {
        name: f"moved-{name}" for name in named_blobs(FULL)
    }
    assert moved.critic is not None
    assert moved.critic.model == ModelRef(path="/models/critic")
    assert with_blobs(moved, named_blobs(FULL)) == FULL


def test_a_part_of_something_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no critic that critic\.weights"):
        with_blobs(HEAD, {"critic.weights": ref("x")})
