"""The verifiers of reasoning-gym, all or nothing. Needs that package beside the reward function."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from functions.reward.outcome import Rewarded
from functions.reward.rules.base import BadGroundTruth
from shared.contracts.errors import RewardFailed

OPENING, CLOSING = "<answer>", "</answer>"
PACKAGE = "reasoning-gym"

TRUSTED_TASKS = frozenset(
    {
        *("ab", "advanced_geometry", "calendar_arithmetic", "chain_sum", "circuit_logic", "color_cube_rotation"),
        *("decimal_chain_sum", "dice", "emoji_mystery", "family_relationships", "futoshiki", "gsm_symbolic"),
        *("manipulate_matrix", "mini_sudoku", "needle_haystack", "number_format", "palindrome_generation"),
        *("path_star", "products", "rectangle_count", "self_reference", "sentence_reordering", "shortest_path"),
        *("spell_backward", "sudoku", "time_intervals", "tsumego", "word_ladder", "word_sorting", "zebra_puzzles"),
    }
)
"""Tasks whose own verifier only compares texts or numbers, next to all tasks that have none of their own.

Others evaluate the answer as Python (``countdown``, ``puzzle24``, ``simple_integration``, ...), take unbounded time
over a short one (``coin_flip``) or give wrong ones full marks (``game_of_life_halting``, ``figlet_font``).
"""

_Verifier = Callable[[str, dict[str, Any]], float]


def reasoning_gym(completion: str, ground_truth: str | None, prompt: str, columns: Mapping[str, Any]) -> Rewarded:
    """1.0 if the task's own verifier gives the answer full marks, else 0.0.

    The answer is the text between the last ``<answer>`` and the ``</answer>`` that closes it, stripped of white space:
    what reasoning-gym's system prompts ask for and its trainers extract. Without the tags nothing is earned. The
    verifiers' partial credit is not given, since most give it for texts that merely contain the answer.

    The row is an entry of reasoning-gym: its answer is the ground truth, and its ``metadata`` (a column, or in
    ``extra_info``) names the task as ``source_dataset``.

    Raises BadGroundTruth for a row without these, of an unknown task or of one outside ``TRUSTED_TASKS``, or whose own
    answer does not get full marks; RewardFailed where the package is not installed.
    """
    metadata = _metadata(columns)
    verify = _verifier(_task(metadata))
    if ground_truth is None:
        raise BadGroundTruth("reasoning_gym needs the entry's answer as ground truth, the row has none")
    entry = {"question": columns.get("question", prompt), "answer": ground_truth, "metadata": metadata}
    if not _is_right(verify, ground_truth, entry):
        raise BadGroundTruth(
            f"reasoning_gym's verifier does not accept the row's own answer {ground_truth!r}: write answer and "
            "metadata as reasoning-gym made them"
        )
    answer = answer_in(completion)
    return Rewarded(reward=1.0 if answer is not None and _is_right(verify, answer, entry) else 0.0, answer=answer)


def answer_in(completion: str) -> str | None:
    """The text in the last pair of answer tags, stripped; ``None`` if there is no pair."""
    before, closing, _ = completion.rpartition(CLOSING)
    _, opening, answer = before.rpartition(OPENING)
    return answer.strip() if closing and opening else None


def _metadata(columns: Mapping[str, Any]) -> dict[str, Any]:
    extra_info = columns.get("extra_info")
    metadata = columns.get("metadata") or (extra_info.get("metadata") if isinstance(extra_info, dict) else None)
    if not isinstance(metadata, dict):
        raise BadGroundTruth("reasoning_gym needs the entry's metadata, as a column of that name or in extra_info")
    return metadata


def _task(metadata: Mapping[str, Any]) -> str:
    task = metadata.get("source_dataset")
    if not isinstance(task, str):
        raise BadGroundTruth(f"reasoning_gym needs the task's name in metadata.source_dataset, the row has {task!r}")
    return task


def _is_right(verify: _Verifier, answer: str, entry: dict[str, Any]) -> bool:
    try:
        return verify(answer, entry) == 1.0
    except Exception:  # of whatever kind: some verifiers let the failure to read an answer through
        return False


@lru_cache(maxsize=256)
def _verifier(task: str) -> _Verifier:
    try:
        factory, dataset = import_module("reasoning_gym.factory"), import_module("reasoning_gym.dataset")
    except ImportError as error:
        raise RewardFailed(
            f"The reward rule reasoning_gym cannot import {PACKAGE}: {error}. Install it where the reward function "
            f"runs: pip install {PACKAGE}"
        ) from error
    if task not in factory.DATASETS:
        raise BadGroundTruth(f"the installed {PACKAGE} has no task {task!r}: correct metadata.source_dataset")
    only_compares = factory.DATASETS[task][0].score_answer is dataset.ProceduralDataset.score_answer
    if not only_compares and task not in TRUSTED_TASKS:
        raise BadGroundTruth(
            f"the verifier of {task!r} may run the answer as code, take unbounded time or accept wrong answers: score "
            "this task by a reward.custom_reward_function, which has a process and a time limit of its own"
        )
    verify: _Verifier = factory.get_score_answer_fn(task)
    return verify
