"""The letter that a completion chooses."""

import re
from collections.abc import Mapping
from typing import Any

from functions.reward.outcome import Rewarded
from functions.reward.rules.base import BadGroundTruth
from shared.contracts.reward import MultipleChoiceParameters

# Each with the letter as its group; the letter stands alone, in brackets, bold or boxed, and ends there.
# Every repeat is bounded: a text of nothing but spaces must not take for ever.
_OPENING, _CLOSING = r"(?:\\boxed\{|\\text\{|[\s(\[*$]){0,8}", r"(?![A-Za-z0-9])"
_ANNOUNCED = r"(?i:answer|choice|option)\s{0,4}(?i:is|would be|will be)?\s{0,4}:?"


class MultipleChoice:
    r"""1.0 if the completion's last choice is the ground truth's letter, else 0.0.

    A choice is a letter after "answer", "choice" or "option" (``Answer: (C)``, ``the answer is **C**``), or in
    ``\boxed{}``; where there is none, a completion that is nothing but a letter (``C``, ``(C).``). Capitals only.
    Several choices after each other count by the last, so that naming them all earns what the last one earns.
    """

    def __init__(self, parameters: MultipleChoiceParameters) -> None:
        self._letters = parameters.letters
        letter = f"([{parameters.letters}])"
        self._chosen = re.compile(
            rf"(?:{_ANNOUNCED}{_OPENING}|\\boxed\{{\s{{0,4}}(?:\\text\{{)?\s{{0,4}}\(?){letter}{_CLOSING}"
        )
        self._alone = re.compile(rf"[(\[*]{{0,4}}{letter}[)\]*.:]{{0,4}}")

    def __call__(self, completion: str, ground_truth: str | None, prompt: str, columns: Mapping[str, Any]) -> Rewarded:
        """Compare. Raises BadGroundTruth unless the ground truth is a letter, or a letter in brackets."""
        truth = self._alone.fullmatch((ground_truth or "").strip())
        if truth is None:
            raise BadGroundTruth(
                f"multiple_choice needs one of the letters {self._letters} as ground truth, "
                f"the row has {ground_truth!r}"
            )
        answer = self.choice(completion)
        return Rewarded(reward=1.0 if answer == truth[1] else 0.0, answer=answer)

    def choice(self, completion: str) -> str | None:
        """The chosen letter; ``None`` where there is no choice."""
        chosen: list[str] = self._chosen.findall(completion)
        if chosen:
            return chosen[-1]
        alone = self._alone.fullmatch(completion.strip())
        return alone[1] if alone else None
