"""Held-out accuracy of an engine's policy, by the rule that rewards it."""

from collections.abc import Sequence

from functions.reward.rules.exact_number import exact_number
from functions.rollout.engine import Engine, FinishedSequence, SamplingParams, SequenceRequest
from scripts.demo.addition import MAX_COMPLETION_CHARACTERS, Addition
from shared.modeling.randomness import address_seed
from shared.modeling.tokenizer import Tokenizer

NUM_SAMPLES = 4
MAX_TOKENS = MAX_COMPLETION_CHARACTERS + 9


def accuracy(
    engine: Engine, tokenizer: Tokenizer, problems: Sequence[Addition], *, greedy: bool = False, seed: int = 0
) -> float:
    """Share of correct completions: of 4 sampled at temperature 1 per problem, or of the greedy ones."""
    params = SamplingParams(
        temperature=0.0 if greedy else 1.0, max_tokens=MAX_TOKENS, eos_token_ids=tokenizer.eos_token_ids
    )
    by_uid = {problem.prompt: problem for problem in problems}
    engine.add(
        [
            SequenceRequest(
                row_uid=uid,
                sample=sample,
                prompt_token_ids=tuple(tokenizer.encode(problem.prompt)),
                seed=address_seed(seed, "eval", 0, 0, uid, sample),
            )
            for uid, problem in by_uid.items()
            for sample in range(1 if greedy else NUM_SAMPLES)
        ],
        params,
    )
    finished: list[FinishedSequence] = []
    while engine.num_running:
        finished += engine.step()
    rewards = [
        exact_number(
            tokenizer.decode(sequence.token_ids),
            by_uid[sequence.row_uid].answer,
            sequence.row_uid,
            {},
        ).reward
        for sequence in finished
    ]
    return sum(rewards) / len(rewards)
