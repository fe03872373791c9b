"""Facts of a completion, read from the beginning of its bytes."""

from dataclasses import replace

import numpy as np
import pytest

from shared.codec.completion_facts import decode_facts
from shared.codec.completions import DamagedCompletion, Partial, encode_completion, encode_partial
from shared.contracts.completion import Completion, SampleId, Stay

STAYS = (
    Stay(shard=1, instance="a", started_at=1.5, first_token_at=None, ended_at=2.0, num_tokens=0),
    Stay(shard=0, instance="b", started_at=2.25, first_token_at=2.5, ended_at=3.0, num_tokens=5),
)
COMPLETION = Completion(
    id=SampleId("train-000001.e2", 3),
    prompt_num_tokens=7,
    token_ids=np.arange(5, dtype=np.int32),
    rollout_logprobs=np.zeros(5, dtype=np.float32),
    processed_logprobs=np.zeros(5, dtype=np.float32),
    loss_mask=np.ones(5, dtype=np.bool_),
    segments=(0,),
    finish_reason="length",
    policy_version=2,
    weights_digest="d" * 64,
    instance="b",
    started_at=1.5,
    ended_at=3.0,
    stays=STAYS,
)


def header_of(data: bytes) -> bytes:
    return data[: 8 + int.from_bytes(data[:8], "little")]


def test_all_facts_are_in_the_header() -> None:
    data = encode_completion(COMPLETION)
    header = header_of(data)
    assert len(header) < len(data)
    facts = decode_facts(header)
    assert facts == decode_facts(data)
    assert (facts.id, facts.prompt_num_tokens, facts.num_tokens) == (COMPLETION.id, 7, 5)
    assert (facts.finish_reason, facts.instance) == ("length", "b")
    assert (facts.started_at, facts.ended_at) == (1.5, 3.0)
    assert facts.stays == STAYS


def test_stays_may_be_unknown() -> None:
    assert decode_facts(encode_completion(replace(COMPLETION, stays=()))).stays == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(8),
        b"abc",
        b"\x02" + bytes(7) + b"{}",
        encode_completion(COMPLETION)[:50],
        encode_partial(
            Partial(
                token_ids=COMPLETION.token_ids,
                rollout_logprobs=COMPLETION.rollout_logprobs,
                processed_logprobs=COMPLETION.processed_logprobs,
                loss_mask=COMPLETION.loss_mask,
            )
        ),
    ],
)
def test_what_is_no_completion_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedCompletion, match="not a stored completion"):
        decode_facts(data)
