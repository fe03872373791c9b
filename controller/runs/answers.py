"""How long the ground-truth answers of rows are: what their completions' lengths are guessed by before any is known."""

import asyncio
from collections.abc import Sequence

from controller.runs.data.columns import value_of
from controller.runs.prepared import Prepared
from shared.contracts.prompt import Prompt
from shared.modeling.tokenizer import Tokenizer

ANSWER_COLUMNS = ("answer", "solution", "extra_info.answer", "extra_info.solution")
"""Columns that may have the whole answer where the ground truth is its last line. GSM8K as verl stores it has one."""


async def answer_tokens(prepared: Prepared, prompts: Sequence[Prompt]) -> dict[str, int]:
    """Tokens of the longest text that answers each row, by its uid; rows without any are left out."""
    tokenizer = prepared.tokenizer
    if tokenizer is None:
        return {}
    texts = {prompt.row_uid: text for prompt in prompts if (text := answer_text(prompt)) is not None}
    return await asyncio.to_thread(_count, tokenizer, texts)


def answer_text(prompt: Prompt) -> str | None:
    """The longest text of the row that is known to be an answer."""
    found = [prompt.ground_truth]
    for name in ANSWER_COLUMNS:
        try:
            found.append(value_of(prompt.columns, name))
        except (KeyError, TypeError):
            continue
    return max((text for text in found if isinstance(text, str) and text), key=len, default=None)


def _count(tokenizer: Tokenizer, texts: dict[str, str]) -> dict[str, int]:
    return {row_uid: len(tokenizer.encode(text)) for row_uid, text in texts.items()}
