"""Prompts of three short tasks of reasoning-gym: data/train.jsonl and data/heldout.jsonl, which share no question.

    python -m scripts.examples.smollm2.make_data [FOLDER]

A row is an entry as reasoning-gym makes it (question, answer, metadata), which is what the rule `reasoning_gym` reads,
with chat messages as its prompt. The messages show two answered questions of the same task: a model of this size does
not follow a described format, and one that never answers in tags earns nothing to learn from. Needs the extra
`examples`.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

DEFAULT_FOLDER = Path(__file__).with_name("data")
TASKS: Mapping[str, Mapping[str, Any]] = {
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "products": {"min_digits": 1, "max_digits": 1},
    "gcd": {"max_value": 20},
}
"""So easy that of eight sampled answers some are right and some wrong to about every second question."""
NUM_EXAMPLES = 2
NUM_HELDOUT, NUM_TRAIN = 16, 64
"""Questions of each task; there are a hundred different products."""
SEED = 7
INSTRUCTION = "Answer each question with the result only, between <answer> and </answer> tags."

Entry = dict[str, Any]


def main() -> None:
    """Write both files; the same bytes every time."""
    parser = argparse.ArgumentParser(prog="make_data", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="where to put the files")
    make_data(parser.parse_args().folder)


def make_data(folder: Path) -> None:
    """Write train.jsonl and heldout.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    heldout: list[Entry] = []
    train: list[Entry] = []
    for task in TASKS:
        entries = distinct_entries(task)
        examples = [next(entries) for _ in range(NUM_EXAMPLES)]
        heldout += [as_row(next(entries), examples) for _ in range(NUM_HELDOUT)]
        train += [as_row(next(entries), examples) for _ in range(NUM_TRAIN)]
    write_rows(folder / "heldout.jsonl", heldout)
    write_rows(folder / "train.jsonl", train)


def distinct_entries(task: str) -> Iterator[Entry]:
    """Entries of the task in a fixed order, each question once."""
    import reasoning_gym

    seen: set[str] = set()
    size = 4 * (NUM_EXAMPLES + NUM_HELDOUT + NUM_TRAIN)
    for entry in reasoning_gym.create_dataset(task, size=size, seed=SEED, **TASKS[task]):
        if entry["question"] not in seen:
            seen.add(entry["question"])
            yield entry


def as_row(entry: Entry, examples: Iterable[Entry]) -> Entry:
    """The entry with its prompt."""
    messages = [{"role": "system", "content": INSTRUCTION}]
    for example in examples:
        messages += [
            {"role": "user", "content": example["question"]},
            {"role": "assistant", "content": f"<answer>{example['answer']}</answer>"},
        ]
    messages.append({"role": "user", "content": entry["question"]})
    return {"prompt": messages, "data_source": f"reasoning_gym/{entry['metadata']['source_dataset']}", **entry}


def write_rows(file: Path, rows: Iterable[Entry]) -> None:
    """One JSON object per line."""
    file.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
