"""A verifiable reward in TRL's form: 1 for the right sum, and a little for digits, so that groups differ."""

import re


def reward(completions: list[str], answer: list[str], **_: object) -> list[float]:
    """One reward per completion."""
    rewards = []
    for completion, wanted in zip(completions, answer, strict=True):
        found = re.search(r"\d+", completion)
        exact = 1.0 if found is not None and found.group() == wanted else 0.0
        rewards.append(exact + 0.1 * sum(char.isdigit() for char in completion) / max(1, len(completion)))
    return rewards
