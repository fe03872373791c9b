"""How an engine draws the tokens of a call."""

from functions.rollout.engine import SamplingParams
from shared.contracts.rollout import Sampling


def sampling_params(sampling: Sampling, turn_stop: tuple[str, ...] = ()) -> SamplingParams:
    """How the engine draws tokens; ``turn_stop`` ends turns beside what the call itself stops at."""
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_tokens=sampling.min_tokens,
        max_tokens=sampling.max_tokens,
        eos_token_ids=() if sampling.ignore_eos else sampling.eos_token_ids,
        stop=tuple(dict.fromkeys((*sampling.stop, *turn_stop))),
    )
