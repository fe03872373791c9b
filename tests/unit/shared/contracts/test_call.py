"""The digest of a call: what makes two calls with one key the same call."""

import json

import pytest
from pydantic import ValidationError

from shared.contracts.call import ATTEMPT_FIELDS, BatchKey, CallKey, StageCall
from shared.contracts.learner import LearnerInputs
from shared.contracts.rollout import RolloutInputs, Sampling
from shared.contracts.stage import Purpose, Stage
from tests.unit.shared.contracts.examples import EXAMPLES, POLICY, blob, calls

CALL = EXAMPLES["rollout_call"]
assert isinstance(CALL, StageCall)
ANOTHER_ATTEMPT = {"attempt": 9, "fence": 99, "deadline_at": 1.0, "threads": 16, "trace_id": "other"}


def changed(**changes: object) -> StageCall[RolloutInputs]:
    return StageCall[RolloutInputs].model_validate(CALL.model_dump() | changes)


def test_another_attempt_at_a_call_has_its_digest() -> None:
    assert set(ANOTHER_ATTEMPT) == ATTEMPT_FIELDS
    for field, value in ANOTHER_ATTEMPT.items():
        assert getattr(CALL, field) != value
        assert changed(**{field: value}).digest() == CALL.digest()
    assert changed(**ANOTHER_ATTEMPT).digest() == CALL.digest()


def test_another_plan_of_the_same_batch_leaves_a_rollout_call_its_digest() -> None:
    assert CALL.inputs.attempt_fields == {"num_samples", "prefix_kv"}
    other = {"num_samples": CALL.inputs.num_samples + 1, "prefix_kv": not CALL.inputs.prefix_kv}
    assert changed(inputs=CALL.inputs.model_copy(update=other)).digest() == CALL.digest()


@pytest.mark.parametrize(
    "change",
    [
        {"key": CALL.key.model_copy(update={"segment": 2})},
        {"key": CALL.key.model_copy(update={"run": "run-2"})},
        {"policy": None},
        {"policy": POLICY.model_copy(update={"version": 4})},
        {"policy": POLICY.model_copy(update={"weights": POLICY.weights.model_copy(update={"sha256": "f" * 64})})},
        {"inputs": CALL.inputs.model_copy(update={"run_seed": 12})},
        {"inputs": CALL.inputs.model_copy(update={"prompts": blob("others")})},
        {
            "inputs": CALL.inputs.model_copy(
                update={"sampling": Sampling(temperature=0.5, max_tokens=3, eos_token_ids=())}
            )
        },
    ],
)
def test_another_body_has_another_digest(change: dict[str, object]) -> None:
    assert changed(**change).digest() != CALL.digest()


def test_digests_of_different_calls_differ() -> None:
    digests = [call.digest() for call in calls()]
    assert len(set(digests)) == len(digests)


def test_a_digest_does_not_depend_on_how_the_call_was_spelt() -> None:
    body = json.loads(CALL.model_dump_json())
    body["inputs"]["sampling"]["temperature"] = 1
    reordered = {key: body[key] for key in reversed(list(body))}
    assert StageCall[RolloutInputs].model_validate_json(json.dumps(reordered, indent=3)).digest() == CALL.digest()


def test_the_digest_is_the_same_in_every_build() -> None:
    """Functions of two builds share a store: a digest computed otherwise would turn a retry into a conflict."""
    assert CALL.digest() == "516ae9a97cc4f67b0fc707a3701a410041424bc6e115ad82fd53481ca47e403b"


def test_inputs_of_another_stage_are_refused() -> None:
    with pytest.raises(ValidationError):
        StageCall[LearnerInputs].model_validate_json(CALL.model_dump_json())


@pytest.mark.parametrize(
    "change",
    [
        {"fence": -1},
        {"attempt": -1},
        {"threads": 0},
        {"threads": 10_000},
        {"trace_id": "x" * 129},
        {"deadline_at": None},
        {"key": {**CALL.key.model_dump(), "run": "Run"}},
        {"key": {**CALL.key.model_dump(), "run": "../run"}},
        {"key": {**CALL.key.model_dump(), "run": "run:1"}},
        {"key": {**CALL.key.model_dump(), "run": "run}"}},
        {"key": {**CALL.key.model_dump(), "run": "run\n"}},
        {"key": {**CALL.key.model_dump(), "run": ""}},
        {"key": {**CALL.key.model_dump(), "run": "a" * 64}},
        {"key": {**CALL.key.model_dump(), "step": -1}},
        {"key": {**CALL.key.model_dump(), "purpose": "test"}},
        {"key": {**CALL.key.model_dump(), "stage": "trainer"}},
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        changed(**change)


def test_a_call_key_names_its_batch_and_prints_all_its_parts() -> None:
    key = CallKey(run="r", purpose=Purpose.EVAL, step=4, round=1, stage=Stage.REWARD, shard=2, segment=3)
    assert key.batch == BatchKey(run="r", purpose=Purpose.EVAL, step=4, round=1)
    assert str(key) == "r/eval/4/1/reward/main/2/3"
