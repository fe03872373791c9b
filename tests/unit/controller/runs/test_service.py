"""What can be asked of the runs."""

import asyncio
import json
from pathlib import Path

import pytest

from controller.platforms.simulated.clock import EPOCH
from controller.runs.config.problems import ConfigInvalid
from controller.runs.errors import CheckpointUnknown, RunConflict, RunUnknown
from controller.runs.service import new_run_id
from shared.contracts.errors import CallConflict, InvalidInput
from shared.contracts.ids import is_identifier
from shared.contracts.stage import Stage
from tests.fakes.gates import gated_store
from tests.fakes.stack import make_stack
from tests.fakes.virtual import in_virtual_time


@in_virtual_time
async def test_a_submitted_run_is_queued_with_its_whole_config(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    record = await controller.service.submit(stack.document(), ["rollout.n=4"], idempotency_key=None)
    assert record.state == "queued"
    assert record.created_at == EPOCH
    assert record.config["rollout"]["n"] == 4
    assert record.config["model"]["path"] == str(tmp_path / "model"), "paths are resolved under the roots"
    assert record.info["total_steps"] == 3
    events = await controller.service.events(record.id, after="0", wait_s=0)
    assert events[0].data == {"state": "queued"}
    notes = [event.data["message"] for event in events if event.kind == "log"]
    assert len(notes) == 2
    assert notes[0].startswith("train: 8 rows of train.jsonl")
    await stack.stop()


@in_virtual_time
async def test_notes_are_told_without_secrets(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (await stack.start()).service
    key = "hf_" + "a1B2" * 6
    rows = [json.dumps({key: "w1 w2", "answer": "w1"}) for _ in range(8)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    (tmp_path / "val.jsonl").write_text("\n".join(rows))
    document = stack.document(data__prompt_key=key)
    assert key not in str((await service.check(document, ())).notes)
    record = await service.submit(document, (), idempotency_key=None)
    assert record.config["data"]["prompt_key"] == key
    assert key not in str(record.info)
    assert key not in str(await service.events(record.id, after="0", wait_s=0))
    await stack.stop()


@in_virtual_time
async def test_the_same_post_again_is_the_same_run_and_another_with_its_key_is_refused(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    operations: list[str] = []
    counted = gated_store(stack.store, lambda operation, done: operations.append(operation))
    service = (await stack.start(store=counted)).service
    first = await service.submit(stack.document(), (), idempotency_key="key")
    await asyncio.sleep(1)
    operations.clear()
    again = await service.submit(stack.document(), (), idempotency_key="key")
    assert again.id == first.id
    assert "append" not in operations, "nothing is told of a run that was not made"
    with pytest.raises(CallConflict):
        await service.submit(stack.document(), ["rollout.n=4"], idempotency_key="key")
    other = await service.submit(stack.document(), (), idempotency_key=None)
    assert [record.id for record in await service.list()] == [first.id, other.id]
    queued = [event for event in await service.events(first.id, after="0", wait_s=0) if event.kind == "state"]
    assert [event.data["state"] for event in queued].count("queued") == 1
    await stack.stop()


@in_virtual_time
async def test_a_config_that_is_wrong_starts_nothing(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (await stack.start()).service
    for overrides, field in (
        (["rollout.n=1"], "rollout.n"),
        (["model.path=nowhere"], "model.path"),
        (["data.train_files=../outside.jsonl"], "data.train_files"),
        (["rolout.n=4"], "rolout.n"),
    ):
        with pytest.raises(ConfigInvalid) as caught:
            await service.submit(stack.document(), overrides, idempotency_key="key")
        assert caught.value.problems[0].field == field
        assert caught.value.problems[0].suggestion
    assert await service.list() == []
    # The key is still free.
    await service.submit(stack.document(), (), idempotency_key="key")
    await stack.stop()


@in_virtual_time
async def test_a_checkpoint_folder_that_cannot_be_written_is_refused_before_the_start(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (await stack.start()).service
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "rlhfless").write_text("a file in the project's place")
    document = stack.document(trainer__default_local_dir="checkpoints")
    with pytest.raises(ConfigInvalid, match=r"trainer\.default_local_dir: checkpoints cannot be written"):
        await service.submit(document, (), idempotency_key=None)
    assert await service.list() == []
    await stack.stop()


@in_virtual_time
async def test_a_dry_run_tells_what_would_run_and_leaves_nothing(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (await stack.start()).service
    found = await service.check(stack.document(), ["trainer.total_training_steps=null", "trainer.total_epochs=3"])
    assert (found.num_rows, found.num_heldout_rows, found.total_steps) == (8, 4, 6)
    assert found.config["trainer"]["total_epochs"] == 3
    assert len(found.notes) == 2
    assert await service.list() == []
    assert not (tmp_path / "state").exists()
    await stack.stop()


@in_virtual_time
async def test_an_unknown_run_is_named_with_the_closest_known(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (await stack.start()).service
    record = await service.submit(stack.document(trainer__experiment_name="sums"), (), idempotency_key=None)
    with pytest.raises(RunUnknown, match=f"did you mean {record.id}"):
        await service.get(record.id[:-1])
    for ask in (service.cancel, service.resume, service.delete, service.history, service.summary, service.checkpoints):
        with pytest.raises(RunUnknown, match=r"there is no run 'nobody'$"):
            await ask("nobody")
    with pytest.raises(RunUnknown):
        await service.events("nobody", after="0", wait_s=0)
    await stack.stop()


@in_virtual_time
async def test_what_a_state_does_not_allow_is_refused(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (controller := await stack.start()).service
    run = await stack.submit(controller)
    await stack.until(run, "running")
    with pytest.raises(RunConflict, match="is running: cancel it first"):
        await service.delete(run)
    with pytest.raises(RunConflict, match="is running: it needs no resuming"):
        await service.resume(run)
    await stack.until(run, "succeeded")
    with pytest.raises(RunConflict, match="has succeeded: resuming it would do nothing"):
        await service.resume(run)
    with pytest.raises(RunConflict, match="has succeeded already"):
        await service.cancel(run)
    assert await stack.states(run) == ["queued", "running", "succeeded"]
    await stack.stop()


@in_virtual_time
async def test_a_run_that_waits_is_not_deleted_before_it_is_cancelled(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (controller := await stack.start()).service
    await stack.submit(controller)
    await asyncio.sleep(1)
    second = await stack.submit(controller)
    with pytest.raises(RunConflict, match="is queued: cancel it first"):
        await service.delete(second)
    await service.cancel(second)
    await service.delete(second)
    with pytest.raises(RunUnknown):
        await service.get(second)
    await stack.stop()


@in_virtual_time
async def test_deleting_forgets_the_run_and_its_blobs_but_not_its_checkpoints(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (controller := await stack.start()).service
    run = await stack.submit(controller)
    await stack.until(run, "succeeded")
    [checkpoint] = await service.checkpoints(run)
    head = await stack.head(run)
    await service.delete(run)
    assert await service.list() == []
    assert await stack.blobs.purge(run, before_step=2**31, keep=()) == 0
    assert await stack.store.runs.head(run) is None
    assert await stack.store.events.read(run) == []
    weights = Path(checkpoint.folder) / "huggingface" / "model.safetensors"
    assert weights.read_bytes().startswith(b"weights")
    assert head.step == 3
    await stack.stop()


@in_virtual_time
async def test_the_history_and_what_it_came_to(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (controller := await stack.start()).service
    run = await stack.submit(controller)
    assert await service.history(run) == []
    assert (await service.summary(run))["steps"] == 0
    record = await stack.until(run, "succeeded")
    history = await service.history(run)
    assert [line["kind"] for line in history] == ["init", "eval", "step", "step", "step", "eval", "checkpoint"]
    summary = await service.summary(run)
    assert summary["steps"] == 3
    assert summary["accuracy_before"] == history[1]["accuracy"]
    assert summary["accuracy_after"] == history[5]["accuracy"]
    assert 0 < summary["train_s"] < record.info["finished_at"] - record.info["started_at"]
    assert set(summary["ledger"]) == {"init", "eval", "train"}
    [checkpoint] = await service.checkpoints(run)
    assert summary["checkpoint"] == checkpoint.folder
    json.dumps(summary)
    await stack.stop()


@in_virtual_time
async def test_checkpoints_are_found_by_their_step(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (controller := await stack.start()).service
    run = await stack.submit(controller, trainer__save_freq=1, trainer__max_ckpt_to_keep=2)
    assert await service.checkpoints(run) == []
    await stack.until(run, "succeeded")
    assert [checkpoint.step for checkpoint in await service.checkpoints(run)] == [2, 3]
    folder = await service.checkpoint_folder(run, 2)
    assert folder == tmp_path / "state" / "checkpoints" / "rlhfless" / run / "global_step_2"
    with pytest.raises(CheckpointUnknown, match="no checkpoint of step 1; there are: 2, 3"):
        await service.checkpoint_folder(run, 1)
    await stack.stop()


@in_virtual_time
async def test_events_can_be_followed_from_where_one_stopped(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (controller := await stack.start()).service
    run = await stack.submit(controller)
    seen: list[str] = []
    last = "0"
    while "succeeded" not in seen:
        for event in await service.events(run, after=last, wait_s=60):
            last = event.id
            seen += [event.data["state"]] if event.kind == "state" else []
    assert seen == ["queued", "running", "succeeded"]
    assert await service.events(run, after=last, wait_s=5) == []
    with pytest.raises(InvalidInput):
        await service.events(run, after="yesterday", wait_s=0)
    await stack.stop()


@in_virtual_time
async def test_functions_are_the_platforms(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (await stack.start()).service
    assert {function.name: function.stages for function in await service.functions()} == {
        "rollout": (Stage.ROLLOUT,),
        "reward": (Stage.REWARD,),
        "reference": (Stage.REFERENCE,),
        "critic": (Stage.CRITIC,),
        "learner": (Stage.LEARNER,),
    }
    await stack.stop()


@in_virtual_time
async def test_without_its_store_a_controller_is_not_ready(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    service = (await stack.start()).service
    assert await service.unready() == []
    stack.outage.is_on = True
    assert await service.unready() == ["Redis does not answer"]
    stack.outage.is_on = False
    await stack.stop()


@pytest.mark.parametrize("name", [None, "Sums v2", "ünïcode/../..", "x" * 200, "---", "a.b_c"])
def test_an_id_can_be_part_of_keys_paths_and_urls(name: str | None) -> None:
    made = {new_run_id(name, 1_700_000_000.0) for _ in range(20)}
    assert len(made) == 20
    assert all(is_identifier(run) for run in made)


def test_an_id_tells_the_experiment_and_the_time() -> None:
    assert new_run_id("Sums v2", 1_700_000_000.0).startswith("sums-v2-1114-221320-")


@in_virtual_time
async def test_costs_count_from_the_controllers_start(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    await (await stack.start()).service.submit(stack.document(), (), idempotency_key=None)
    await asyncio.sleep(3600)
    second = (await stack.start()).service
    await asyncio.sleep(60)
    held = await second.holdings()
    assert (held.since, held.now) == (EPOCH + 3600, EPOCH + 3660)
    assert held.replicas, "the platform remembers the replicas of the run"
    assert all(holding.usd == 0.0 for holding in held.replicas), "which ended before this controller started"
    assert held.costs == {}
    first_of_all = min(holding.life.scheduled_at for holding in held.replicas)
    assert first_of_all < held.since
    assert second.platform_name == "simulated"
    await stack.stop()
