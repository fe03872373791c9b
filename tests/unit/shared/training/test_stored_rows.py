"""A batch is of one policy, and whole."""

from dataclasses import replace

import numpy as np
import pytest

from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import MissingBlob, WrongPolicy
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.training.stored_rows import refuse_foreign, refuse_missing

POLICY = PolicyRef(
    version=3,
    model=ModelRef(path="/models/tiny"),
    weights=BlobRef(id="run-1/000003/policy", num_bytes=1, sha256="ab" * 32),
)


def completions(count: int) -> list[Completion]:
    return [
        Completion(
            id=SampleId("row", sample),
            prompt_num_tokens=1,
            token_ids=np.array([5], np.int32),
            rollout_logprobs=np.array([-1.0], np.float32),
            processed_logprobs=np.array([-1.0], np.float32),
            loss_mask=np.array([True]),
            segments=(0,),
            finish_reason="stop",
            policy_version=POLICY.version,
            weights_digest=POLICY.digest,
            instance="rollout-1",
            started_at=1.0,
            ended_at=2.0,
        )
        for sample in range(count)
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"policy_version": 2},
        {"policy_version": 4},
        {"weights_digest": "cd" * 32},
        # Version 3 of one run is not version 3 of another, nor the other way round.
        {"policy_version": 2, "weights_digest": "cd" * 32},
    ],
)
@pytest.mark.parametrize("place", [0, 3])
def test_a_batch_in_which_one_completion_is_of_another_policy_is_refused(other: dict[str, object], place: int) -> None:
    batch = completions(4)
    refuse_foreign(batch, POLICY)
    batch[place] = replace(batch[place], **other)
    with pytest.raises(WrongPolicy, match=f"row:{place} was sampled by version"):
        refuse_foreign(batch, POLICY)


def test_what_is_missing_is_counted_and_named() -> None:
    refuse_missing("values", [])
    with pytest.raises(MissingBlob, match=r"5 values .* row:0, row:1, row:2$"):
        refuse_missing("values", [SampleId("row", sample) for sample in range(5)])
