"""What a run reads: a tiny model, rows, reward functions, and the config that puts them together."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REWARDS = '''
import time


def share_of_ones(data_source, solution_str, ground_truth, extra_info=None):
    """Differs from completion to completion, so that there is something to learn."""
    return solution_str.count("1") / (1 + len(solution_str))


def constant(data_source, solution_str, ground_truth, extra_info=None):
    return 0.3


def raises(data_source, solution_str, ground_truth, extra_info=None):
    raise ValueError("no idea")


def raises_on_six(data_source, solution_str, ground_truth, extra_info=None):
    if ground_truth == "6":
        raise ValueError("no idea of 6")
    return share_of_ones(data_source, solution_str, ground_truth)


def hangs(data_source, solution_str, ground_truth, extra_info=None):
    time.sleep(3600)


def slow(data_source, solution_str, ground_truth, extra_info=None):
    time.sleep(0.1)
    return share_of_ones(data_source, solution_str, ground_truth)
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A folder under the configured roots."""

    root: Path

    @property
    def model(self) -> Path:
        """The tiny model's folder."""
        return self.root / "model"

    def rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> str:
        """Write a JSONL file; returns its path."""
        path = self.root / f"{name}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return str(path)

    def config(self, changes: Mapping[str, Any] | None = None, *, reward: str = "share_of_ones") -> dict[str, Any]:
        """A run of two short steps without evaluation; ``changes`` are by dotted key, ``None`` takes a key out."""
        config: dict[str, Any] = {}
        values: dict[str, Any] = {
            "model.path": str(self.model),
            "data.train_files": str(self.root / "train.jsonl"),
            "data.train_batch_size": 4,
            "data.max_prompt_length": 16,
            "data.max_response_length": 16,
            "rollout.n": 4,
            "actor.optim.lr": 1e-3,
            "reward.custom_reward_function.path": str(self.root / "rewards.py"),
            "reward.custom_reward_function.name": reward,
            "trainer.total_training_steps": 2,
            **(changes or {}),
        }
        for key, value in values.items():
            if value is not None:
                *sections, name = key.split(".")
                section = config
                for part in sections:
                    section = section.setdefault(part, {})
                section[name] = value
        return config


def make_workspace(root: Path) -> Workspace:
    """Write everything but the model."""
    workspace = Workspace(root=root)
    (root / "rewards.py").write_text(REWARDS)
    workspace.rows("train", ({"prompt": f"{number}+{number}=", "answer": str(2 * number)} for number in range(8)))
    workspace.rows("heldout", ({"prompt": f"{number}+1=", "answer": str(number + 1)} for number in range(4)))
    return workspace
