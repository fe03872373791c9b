"""Writes the prompts: train.jsonl and heldout.jsonl, which share none.

    python -m scripts.examples.calculator.make_data [--folder DIR] [--shots N]

`--shots 2` puts two worked examples before each problem, for a model that has not seen any demonstration.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from scripts.examples.calculator.products import Product, heldout_products, sample_products

DATA = Path(__file__).parent / "data"
NUM_TRAIN = 4_000


def prompt_with_examples(problem: Product, examples: Sequence[Product]) -> str:
    """The problem after worked examples, one a line."""
    lines = [shown.prompt + shown.question + shown.result + shown.conclusion for shown in examples]
    return "\n".join([*lines, problem.prompt])


def write_rows(file: Path, problems: Sequence[Product], examples: Sequence[Product]) -> None:
    """One JSON object per line: prompt, answer and data source."""
    rows = (
        {"prompt": prompt_with_examples(problem, examples), "answer": problem.answer, "data_source": "products"}
        for problem in problems
    )
    file.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")


def make_data(folder: Path, num_shots: int = 0) -> None:
    """Both files; the same bytes every time."""
    folder.mkdir(parents=True, exist_ok=True)
    heldout = heldout_products()
    examples = sample_products(num_shots, seed=3, excluded=heldout)
    write_rows(folder / "heldout.jsonl", heldout, examples)
    train = sample_products(NUM_TRAIN, seed=1, excluded=[*heldout, *examples])
    write_rows(folder / "train.jsonl", train, examples)


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.examples.calculator.make_data", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--folder", type=Path, default=DATA)
    parser.add_argument("--shots", type=int, default=0)
    options = parser.parse_args()
    make_data(options.folder, options.shots)


if __name__ == "__main__":
    main()
