"""A run goes on with what it was submitted with, or not at all."""

from pathlib import Path
from typing import Any

import pytest

from shared.store.base import Event
from tests.fakes.stack import Controller, Stack, make_stack
from tests.fakes.virtual import in_virtual_time

ENDED = ("failed", "cancelled", "succeeded")


async def cancelled_midway(stack: Stack, controller: Controller, **overrides: Any) -> str:
    """A run with a head and a step to go."""
    run = await stack.submit(controller, **overrides)
    seen: list[Event] = []
    while not any(event.kind == "step" for event in seen):
        seen += await stack.store.events.read(run, after=seen[-1].id if seen else "0", wait_s=3600)
    await controller.service.cancel(run)
    await stack.until(run, "cancelled")
    return run


@pytest.mark.parametrize("name", ["train", "val"])
@in_virtual_time
async def test_a_data_file_that_changed_since_the_run_was_submitted_is_refused_by_name(
    tmp_path: Path, name: str
) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    run = await cancelled_midway(stack, controller)
    before, file = (await stack.head(run)).model_dump(), tmp_path / f"{name}.jsonl"
    rows = file.read_text()
    file.write_text("".join(reversed(rows.splitlines(keepends=True))))
    await controller.service.resume(run)
    record = await stack.until(run, *ENDED)
    assert record.state == "failed"
    assert f"data.{name}_files: the rows of {name}.jsonl changed after the run was submitted" in record.info["error"]
    assert (await stack.head(run)).model_dump() == before
    file.write_text(rows)
    await controller.service.resume(run)
    assert (await stack.until(run, *ENDED)).state == "succeeded"
    await stack.stop()


@in_virtual_time
async def test_another_tokenizer_is_refused_and_a_mended_reward_is_told_of(tmp_path: Path) -> None:
    reward, tokenizer = tmp_path / "reward.py", tmp_path / "model" / "tokenizer.json"
    reward.write_text("def compute_score(**_): return 1.0\n")
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    by_function = {"reward__rule": None, "reward__custom_reward_function__path": "reward.py"}
    run = await cancelled_midway(stack, controller, **by_function)
    words = tokenizer.read_text()
    tokenizer.write_text(f"{words}\n")
    await controller.service.resume(run)
    record = await stack.until(run, *ENDED)
    assert "model.path: the tokenizer of model changed" in record.info["error"]
    tokenizer.write_text(words)
    reward.write_text("def compute_score(**_): return 0.5\n")
    await controller.service.resume(run)
    assert (await stack.until(run, *ENDED)).state == "succeeded"
    told = [event.data["message"] for event in await stack.store.events.read(run) if event.kind == "log"]
    assert any(line.startswith("reward.custom_reward_function.path: the file changed") for line in told)
    await stack.stop()


@in_virtual_time
async def test_held_out_rows_of_the_training_files_are_the_training_files(tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"prompt": "w9 w3", "answer": "w9"}\n')
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    files = {"data__train_files": ["train.jsonl", "more.jsonl"], "data__val_files": None, "data__val_split": 3}
    run = await cancelled_midway(stack, controller, **files)
    (tmp_path / "more.jsonl").write_text('{"prompt": "w9 w4", "answer": "w9"}\n')
    await controller.service.resume(run)
    error = (await stack.until(run, *ENDED)).info["error"]
    assert error.count("changed after the run was submitted") == 1
    assert error.startswith("data.train_files: the rows of train.jsonl, more.jsonl changed")
    await stack.stop()
