"""GSM8K as rows that a run trains on: data/train.parquet and data/test.parquet, with the columns that verl writes.

    python -m scripts.examples.gsm8k.make_data [FOLDER]

Reads the dataset from the hub, or from the hub's cache (HF_HUB_OFFLINE=1). A row gets chat messages as its prompt and,
as its ground truth, the number behind the `####` that ends GSM8K's worked answers. Needs pyarrow.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from controller.runs.config.problems import ConfigInvalid
from controller.runs.data.hub import local_file, pinned_files
from controller.runs.data.parquet import read_parquet
from scripts.examples.gsm8k.reward import final_answer

DEFAULT_FOLDER = Path(__file__).with_name("data")
DATASET = "openai/gsm8k"
SPLITS = ("train", "test")
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(prog="make_data", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="where to put the files")
    try:
        make_data(parser.parse_args().folder)
    except ConfigInvalid as error:
        sys.exit(f"make_data: {error}")


def make_data(folder: Path) -> None:
    """Write train.parquet and test.parquet. Raises ``ConfigInvalid`` where the dataset is not to be had."""
    from pyarrow import Table, parquet

    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        rows = [as_row(row, split, index) for index, row in enumerate(hub_rows(split))]
        parquet.write_table(Table.from_pylist(rows), folder / f"{split}.parquet")


def hub_rows(split: str) -> Iterator[Mapping[str, Any]]:
    """Question and worked answer of each row."""
    pattern = f"hf://datasets/{DATASET}/main/{split}-*.parquet"
    files: Iterable[str] = pinned_files(pattern, field=DATASET, allow_hub=True)
    for file in files:
        for row in read_parquet(local_file(file, field=DATASET), field=DATASET):
            yield row.columns


def as_row(row: Mapping[str, Any], split: str, index: int) -> dict[str, Any]:
    """verl's columns. Raises ``ValueError`` for a worked answer without a final one."""
    answer = final_answer(row["answer"])
    if answer is None:
        raise ValueError(f"row {index} of {split} has no #### in its answer")
    return {
        "data_source": DATASET,
        "prompt": [{"role": "user", "content": f"{row['question']} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"split": split, "index": index, "answer": row["answer"], "question": row["question"]},
    }


if __name__ == "__main__":
    main()
