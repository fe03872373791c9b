"""Writes the demo's prompts: data/train.jsonl and data/heldout.jsonl, which share none.

python -m scripts.demo.make_data
"""

import json
from collections.abc import Sequence
from pathlib import Path

from scripts.demo.addition import Addition, heldout_additions, sample_additions

DATA = Path(__file__).parent / "data"
NUM_TRAIN = 12_000
"""More than 360 steps of 32 prompts, so no prompt comes twice."""


def write_rows(file: Path, problems: Sequence[Addition]) -> None:
    """One JSON object per line: prompt, answer and data source."""
    rows = ({"prompt": problem.prompt, "answer": problem.answer, "data_source": "addition"} for problem in problems)
    file.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")


def make_data(folder: Path) -> None:
    """Both files; the same bytes every time."""
    folder.mkdir(parents=True, exist_ok=True)
    heldout = heldout_additions()
    write_rows(folder / "heldout.jsonl", heldout)
    write_rows(folder / "train.jsonl", sample_additions(NUM_TRAIN, seed=1, excluded=heldout))


if __name__ == "__main__":
    make_data(DATA)
