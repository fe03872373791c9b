"""Equivalence of mathematical answers, by the math-verify library (github.com/huggingface/Math-Verify)."""

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from functions.reward.outcome import Rewarded
from functions.reward.rules.base import BadGroundTruth
from shared.contracts.errors import RewardFailed
from shared.contracts.reward import MathParameters

# From its end: answers stand there, and reading a long derivation takes longer than all else.
_READ_CHARS = 4000


class Math:
    r"""1.0 if the completion's last answer is mathematically equal to the ground truth, else 0.0.

    ``\frac{1}{2}``, ``0.5``, ``1/2`` and ``50\%`` are equal, as are ``x^2+1`` and ``1+x^2``. The answer is what stands
    in ``\boxed{}`` (several boxes are one set), else what follows "the answer is", else the last LaTeX or number. No
    answer scores 0.0.

    The library's own limits are off: they use signals, which only a main thread has. Comparisons can take for ever
    (``9^{9^{9^9}}``), so this rule is run in a child process that can be ended.
    """

    def __init__(self, parameters: MathParameters) -> None:
        self._parameters = parameters
        try:
            self._library: Any = import_module("math_verify")
        except ImportError as error:
            raise RewardFailed(
                f"The reward rule math cannot import math-verify: {error}. Install it where the reward function runs: "
                "pip install 'rlhfless[rewards]'"
            ) from error
        # It warns on each call that its limits are off.
        for name in ("math_verify.parser", "math_verify.grader"):
            logging.getLogger(name).setLevel(logging.ERROR)
        latex = self._library.LatexExtractionConfig(boxed_match_priority=0)
        self._truth_forms = [latex, self._library.ExprExtractionConfig()]
        self._answer_forms = self._truth_forms
        if parameters.boxed_only:
            boxed = self._library.LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
            self._answer_forms = [boxed]

    def __call__(self, completion: str, ground_truth: str | None, prompt: str, columns: Mapping[str, Any]) -> Rewarded:
        """Compare. Raises BadGroundTruth for one that is missing or not mathematics."""
        truth = self._truth(ground_truth)
        text = completion[-_READ_CHARS:]
        if self._parameters.boxed_only and "\\boxed" not in text:
            return Rewarded(reward=0.0)
        found = self._parse(text, self._answer_forms)
        # What was read comes first, as it was written second.
        answer = next((entry for entry in found if isinstance(entry, str)), None)
        is_right = bool(found) and self._library.verify(
            truth,
            found,
            float_rounding=self._parameters.precision,
            strict=self._parameters.strict,
            timeout_seconds=None,
        )
        return Rewarded(reward=1.0 if is_right else 0.0, answer=answer)

    def _truth(self, ground_truth: str | None) -> list[Any]:
        if ground_truth is None or not ground_truth.strip():
            raise BadGroundTruth(f"math needs an answer as ground truth, the row has {ground_truth!r}")
        # GSM8K's rows hold a derivation, and the answer behind this mark.
        bare = ground_truth.rpartition("####")[2].strip()
        # LaTeX is only recognised within its delimiters.
        truth = self._parse(bare if "$" in bare or "\\boxed" in bare else f"${bare}$", self._truth_forms)
        if not truth:
            raise BadGroundTruth(
                f"math cannot read the row's ground truth {ground_truth!r}: write it as LaTeX or a number"
            )
        return truth

    def _parse(self, text: str, forms: list[Any]) -> list[Any]:
        parsed: list[Any] = self._library.parse(text, extraction_config=forms, parsing_timeout=None)
        return parsed
