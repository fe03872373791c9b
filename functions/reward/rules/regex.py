"""A format, by a regular expression."""

import re
from collections.abc import Mapping
from typing import Any

from functions.reward.outcome import Rewarded
from shared.contracts.reward import RegexParameters


class Regex:
    """1.0 if the completion matches the pattern, else 0.0. The ground truth plays no part.

    The answer is the group named ``answer``, if the pattern has one. A pattern can backtrack for longer than a run
    lasts, so this rule is run in a child process that can be ended.
    """

    def __init__(self, parameters: RegexParameters) -> None:
        pattern = re.compile(parameters.pattern, re.DOTALL if parameters.dot_all else 0)
        self._match = pattern.fullmatch if parameters.match == "full" else pattern.search
        self._has_answer = "answer" in pattern.groupindex

    def __call__(self, completion: str, ground_truth: str | None, prompt: str, columns: Mapping[str, Any]) -> Rewarded:
        """Match."""
        found = self._match(completion)
        answer = found["answer"] if found and self._has_answer else None
        return Rewarded(reward=1.0 if found else 0.0, answer=answer)
