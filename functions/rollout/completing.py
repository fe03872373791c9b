"""What an engine gives back, as it is stored: a completion, or the tokens of one that is not finished."""

import numpy as np

from functions.rollout.engine import FinishedSequence, PartialSequence
from functions.rollout.turns.spans import turn_starts
from shared.codec.completions import Partial
from shared.contracts.completion import Completion, SampleId, Stay
from shared.contracts.policy import PolicyRef
from shared.contracts.prompt import Prompt


def completion_of(sequence: FinishedSequence, prompt: Prompt, policy: PolicyRef, stays: tuple[Stay, ...]) -> Completion:
    """The completion; the last of its stays is the one that finished it."""
    return Completion(
        id=SampleId(sequence.row_uid, sequence.sample),
        prompt_num_tokens=len(prompt.token_ids),
        token_ids=np.asarray(sequence.token_ids, dtype=np.int32),
        rollout_logprobs=np.asarray(sequence.logprobs, dtype=np.float32),
        processed_logprobs=np.asarray(sequence.processed_logprobs, dtype=np.float32),
        loss_mask=np.asarray(sequence.loss_mask, dtype=np.bool_),
        segments=turn_starts(sequence.loss_mask),
        finish_reason=sequence.finish_reason,
        policy_version=policy.version,
        weights_digest=policy.digest,
        instance=stays[-1].instance,
        started_at=stays[0].started_at,
        ended_at=stays[-1].ended_at,
        stays=stays,
    )


def partial_of(sequence: PartialSequence, stays: tuple[Stay, ...], *, has_kv: bool) -> Partial:
    """What whoever goes on with the sequence needs."""
    return Partial(
        token_ids=np.asarray(sequence.token_ids, dtype=np.int32),
        rollout_logprobs=np.asarray(sequence.logprobs, dtype=np.float32),
        processed_logprobs=np.asarray(sequence.processed_logprobs, dtype=np.float32),
        loss_mask=np.asarray(sequence.loss_mask, dtype=np.bool_),
        stays=stays,
        has_kv=has_kv,
    )
