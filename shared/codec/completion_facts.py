"""What is known of a stored completion without reading its tokens: its safetensors header alone."""

import json
from dataclasses import dataclass
from typing import Any

from shared.codec.completions import FACTS, DamagedCompletion
from shared.codec.safetensors_header import HEADER_LENGTH_BYTES, METADATA, NOT_OURS
from shared.contracts.completion import FinishReason, SampleId, Stay


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionFacts:
    """One completion without its tokens."""

    id: SampleId
    prompt_num_tokens: int
    num_tokens: int
    """All tokens after the prompt: sampled and inserted ones."""
    finish_reason: FinishReason
    instance: str
    started_at: float
    """Unix seconds at which the first token was asked for."""
    ended_at: float
    stays: tuple[Stay, ...]
    """Where it was sampled, in order; empty where the function did not say so."""


def decode_facts(header: bytes) -> CompletionFacts:
    """The facts in an encoded completion, of which the header is enough. Raises ``DamagedCompletion``."""
    try:
        length = int.from_bytes(header[:HEADER_LENGTH_BYTES], "little")
        content = json.loads(header[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
        facts: dict[str, Any] = json.loads(content[METADATA][FACTS])
        (num_tokens,) = content["token_ids"]["shape"]
        return CompletionFacts(
            id=SampleId(facts["row_uid"], facts["sample"]),
            prompt_num_tokens=facts["prompt_num_tokens"],
            num_tokens=num_tokens,
            finish_reason=facts["finish_reason"],
            instance=facts["instance"],
            started_at=facts["started_at"],
            ended_at=facts["ended_at"],
            stays=tuple(Stay(**stay) for stay in facts.get("stays", ())),
        )
    except NOT_OURS as error:
        raise DamagedCompletion(f"not a stored completion: {error}") from error
