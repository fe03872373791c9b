"""Runs that are asked to begin from a checkpoint, or to go on: what is accepted, and what would do nothing."""

from pathlib import Path

import pytest

from controller.runs.config.problems import ConfigInvalid
from controller.runs.errors import RunConflict
from controller.runs.state import RunState
from tests.fakes.stack import Controller, Stack, make_stack
from tests.fakes.virtual import in_virtual_time


async def trained(stack: Stack, controller: Controller, steps: int = 3, **overrides: object) -> tuple[str, Path]:
    """A run that has succeeded, and its last checkpoint."""
    run = await stack.submit(controller, trainer__total_training_steps=steps, **overrides)
    record = await stack.until(run, "succeeded", "failed")
    assert record.state == "succeeded", record.info
    return run, Path((await stack.head(run)).checkpoints[-1].folder)


@in_virtual_time
async def test_a_run_on_another_controller_and_store_goes_on_from_a_checkpoint_folder(tmp_path: Path) -> None:
    whole, first, second = [await make_stack(tmp_path / name) for name in ("whole", "first", "second")]
    run, _ = await trained(whole, await whole.start(), 5, data__val_files=None)
    expected = await whole.head(run)
    _, folder = await trained(first, await first.start(), data__val_files=None)
    copied = tmp_path / "second" / "brought"
    folder.rename(copied)

    controller = await second.start()
    run, _ = await trained(
        second,
        controller,
        5,
        data__val_files=None,
        trainer__resume_mode="resume_path",
        trainer__resume_from_path="brought",
    )
    head = await second.head(run)
    assert (head.step, head.first_step, head.policy.digest) == (5, 3, expected.policy.digest)
    record = await second.record(run)
    assert record.info["resume_from"] == str(copied)
    said = [event.data["message"] for event in await second.store.events.read(run) if event.kind == "log"]
    assert any("goes on at step 3 from" in message for message in said)
    for stack in (whole, first, second):
        await stack.stop()


@in_virtual_time
async def test_a_dry_run_says_where_it_would_go_on(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    run, folder = await trained(stack, controller)
    document = stack.document(
        trainer__resume_mode="resume_path", trainer__resume_from_path=str(folder), trainer__total_training_steps=4
    )
    checked = await controller.service.check(document, ())
    assert checked.notes[-1] == f"goes on at step 3 from {folder} (run {run})"
    await stack.stop()


@in_virtual_time
async def test_a_checkpoint_that_does_not_fit_starts_nothing_and_names_every_reason(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    _, folder = await trained(stack, controller)
    document = stack.document(
        trainer__resume_mode="resume_path", trainer__resume_from_path=str(folder), rollout__n=4, trainer__seed=1
    )
    with pytest.raises(ConfigInvalid) as caught:
        await controller.service.submit(document, (), idempotency_key=None)
    assert [problem.field for problem in caught.value.problems] == [
        "data.seed", "rollout.n", "trainer.seed", "trainer.total_training_steps",
    ]  # fmt: skip
    assert "it would do nothing" in caught.value.problems[-1].reason
    assert len(await controller.service.list()) == 1
    await stack.stop()


@in_virtual_time
async def test_auto_begins_at_version_0_and_then_goes_on_where_the_experiment_stands(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    auto = {"trainer__resume_mode": "auto", "trainer__experiment_name": "mine"}
    first, _ = await trained(stack, controller, 2, **auto)
    second, _ = await trained(stack, controller, 4, **auto)
    assert (await stack.head(first)).first_step == 0
    assert (await stack.head(second)).first_step == 2
    with pytest.raises(ConfigInvalid, match="it would do nothing"):
        await stack.submit(controller, trainer__total_training_steps=4, **auto)
    await stack.stop()


@in_virtual_time
async def test_a_tracker_without_its_library_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.runs.trackers.opening.find_spec", lambda name: None)
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    with pytest.raises(ConfigInvalid, match="no wandb library"):
        await stack.submit(controller, trainer__logger="wandb")
    await stack.stop()


@in_virtual_time
async def test_a_resume_that_would_do_nothing_is_refused(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    run, _ = await trained(stack, controller)
    with pytest.raises(RunConflict, match=r"has succeeded: resuming it would do nothing.*resume_path"):
        await controller.service.resume(run)
    # Somebody cancelled it between its last checkpoint and its last word.
    assert await stack.store.runs.transition(run, to=RunState.CANCELLED, allowed=(RunState.SUCCEEDED,))
    with pytest.raises(RunConflict, match="has done all its 3 steps: resuming it would do nothing"):
        await controller.service.resume(run)
    assert (await stack.record(run)).state == "cancelled"
    await stack.stop()


@in_virtual_time
async def test_a_run_at_its_last_step_without_its_checkpoint_still_has_something_to_do(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    run, folder = await trained(stack, controller)
    head = await stack.head(run)
    owned = await stack.store.runs.acquire(run, owner="me", ttl_s=0)
    assert owned is not None
    without = head.model_copy(update={"checkpoints": ()})
    assert await stack.store.runs.advance(
        run,
        fence=owned.fence,
        expected=head.model_dump_json().encode(),
        manifest=without.model_dump_json().encode(),
        history={},
    )
    assert await stack.store.runs.transition(run, to=RunState.FAILED, allowed=(RunState.SUCCEEDED,))
    await controller.service.resume(run)
    await stack.until(run, "succeeded")
    assert [checkpoint.folder for checkpoint in (await stack.head(run)).checkpoints] == [str(folder)]
    await stack.stop()
