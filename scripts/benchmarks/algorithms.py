"""What the demo learns under each algorithm: held-out accuracy before and after, by seed.

Every run is the demo's own config (scripts/demo/addition.yaml) with an algorithm's preset and what it needs besides.
The budget of steps, prompts and completions is the same for all.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts.demo.quickstart import train
from scripts.local_stack import local_stack

ALGORITHMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "grpo": ("preset=grpo",),
        "dapo": ("preset=dapo", "algorithm.filter_groups.max_num_gen_batches=3"),
        "rloo": ("preset=rloo",),
        "gspo": ("preset=gspo",),
        # A verifier cannot be talked into anything, so nothing has to be held near the reference.
        "ppo": ("preset=ppo", "algorithm.use_kl_in_reward=false", "critic.optim.lr=1e-3"),
    }
)
"""Overrides of the demo's config, by algorithm."""


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench algorithms", description=__doc__.splitlines()[0])
    parser.add_argument("--algorithm", action="append", choices=ALGORITHMS, help="default: all of them")
    parser.add_argument("--seed", type=int, action="append", help="default: 0")
    parser.add_argument("--steps", type=int, default=360)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    asked = parser.parse_args()
    console = Console(stderr=asked.json, highlight=False)
    cases = [
        {"name": name, **run_one(name, seed, asked.steps, console)}
        for name in asked.algorithm or ALGORITHMS
        for seed in asked.seed or [0]
    ]
    console.print(table(cases))
    if asked.json:
        print(json.dumps({"cases": cases}))


def run_one(algorithm: str, seed: int, steps: int, console: Console) -> dict[str, Any]:
    """One run on a stack of its own. Raises ``SystemExit`` if it fails."""
    overrides = [*ALGORITHMS[algorithm], f"trainer.seed={seed}", f"trainer.total_training_steps={steps}"]
    with tempfile.TemporaryDirectory(prefix="rlhfless-bench-") as folder, local_stack(Path(folder)) as url:
        outcome = asyncio.run(train(url, overrides, console))
    if outcome["state"] != "succeeded":
        raise SystemExit(f"{algorithm}, seed {seed}: {outcome['reason']}")
    return {
        "seed": seed,
        "steps": outcome["steps"],
        "accuracy_before": outcome["accuracy_before"],
        "accuracy_after": outcome["accuracy_after"],
        "train_s": outcome["train_s"],
    }


def table(cases: list[dict[str, Any]]) -> Table:
    """A line per algorithm: means over its seeds, and the spread of the result."""
    lines = Table("algorithm", "seeds", "before", "after", "lowest", "highest", "training s")
    for name in dict.fromkeys(case["name"] for case in cases):
        of_name = [case for case in cases if case["name"] == name]
        after = [case["accuracy_after"] for case in of_name]
        lines.add_row(
            name,
            ", ".join(str(case["seed"]) for case in of_name),
            f"{statistics.mean(case['accuracy_before'] for case in of_name):.3f}",
            f"{statistics.mean(after):.3f}",
            f"{min(after):.3f}",
            f"{max(after):.3f}",
            f"{statistics.mean(case['train_s'] for case in of_name):.0f}",
        )
    return lines


if __name__ == "__main__":
    main()
