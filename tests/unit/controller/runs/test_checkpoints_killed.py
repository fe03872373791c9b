"""SIGKILL at any moment of saving: some complete checkpoint loads, and no later one is taken for complete."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from controller.runs.checkpoints import blob_file, newest_checkpoint
from controller.runs.manifest import named_blobs
from controller.runs.resumption import read_checkpoint, read_verified
from tests.structure.source_tree import ROOT

NUM_KILLS = 3
LONGEST_S = 0.15
"""Some tens of checkpoints: any of their moments may be the last."""


def test_whenever_the_writer_is_killed_a_complete_checkpoint_is_left(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    root, dice, seen = tmp_path / "checkpoints", random.Random(0), 0
    for _ in range(NUM_KILLS):
        arguments = [sys.executable, "-m", "tests.unit.controller.runs.checkpoint_writer", str(root), str(seen + 1)]
        with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline()
            time.sleep(dice.uniform(0, LONGEST_S))
            writer.kill()
            told = [int(line) for line in writer.stdout.read().split()]
        folder = newest_checkpoint(root)
        assert folder is not None
        saved = read_checkpoint(folder)
        for name, ref in named_blobs(saved.head).items():
            assert len(read_verified(folder / blob_file(saved.head, name), ref)) == ref.num_bytes
        assert saved.head.step >= max(told, default=seen + 1), "what was said to be written is there"
        seen = saved.head.step
        for complete in root.glob("global_step_*"):
            assert read_checkpoint(complete).head.step == int(complete.name.removeprefix("global_step_"))
            if complete != folder:
                shutil.rmtree(complete)
