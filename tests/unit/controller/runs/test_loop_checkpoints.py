"""Checkpoints of a whole run: which stay, and what they hold."""

import json
from pathlib import Path

from controller.runs.checkpoints import HISTORY_FILE, RUN_FILE, SavedRun
from controller.runs.loop import RunLoop
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, make_world

EACH_STEP = {"trainer__total_training_steps": 6, "trainer__save_freq": 1, "trainer__test_freq": 1}


async def accuracies(world: World) -> dict[int, float]:
    """Accuracy by number of steps."""
    return {line["step"]: line["accuracy"] for line in await world.history("eval") if line["step"] > 0}


def on_disk(world: World) -> list[int]:
    return sorted(int(path.name.rpartition("_")[2]) for path in world.checkpoint_root.glob("global_step_*"))


@in_virtual_time
async def test_the_best_on_the_held_out_rows_stay_beside_the_newest(tmp_path: Path) -> None:
    world = await make_world(tmp_path, num_heldout=9, trainer__keep_best=2, **EACH_STEP)
    head = await world.drive()
    measured = await accuracies(world)
    best = sorted(measured, key=lambda step: (measured[step], step))[-2:]
    assert len(set(measured.values())) > 2, "the rows tell versions apart"
    assert on_disk(world) == sorted({*best, 6}) == [checkpoint.step for checkpoint in head.checkpoints]
    assert {checkpoint.step: checkpoint.metric for checkpoint in head.checkpoints} == {
        step: measured[step] for step in on_disk(world)
    }


@in_virtual_time
async def test_the_best_may_be_the_least_of_any_metric(tmp_path: Path) -> None:
    world = await make_world(
        tmp_path,
        num_heldout=9,
        trainer__keep_best=1,
        trainer__best_metric="val-core/reward/mean@1",
        trainer__best_mode="min",
        trainer__max_ckpt_to_keep=2,
        **EACH_STEP,
    )
    await world.drive()
    measured = await accuracies(world)
    worst = min(measured, key=lambda step: (measured[step], -step))
    assert on_disk(world) == sorted({worst, 5, 6})


@in_virtual_time
async def test_a_checkpoint_has_the_run_and_all_that_it_measured_and_cost(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__save_freq=2)
    await world.drive()
    folder = world.checkpoint_root / "global_step_2"
    lines = [json.loads(text) for text in (folder / HISTORY_FILE).read_text().splitlines()]
    whole = [dict(line) for line in await world.store.runs.history(RUN)]
    assert lines == whole[: len(lines)]
    assert [f"{line['kind']} {line['step']}" for line in lines] == ["init 0", "eval 0", "step 0", "step 1"]
    assert all(line["ledger"]["rollout"]["usd"] > 0 for line in lines if line["kind"] == "step")
    saved = SavedRun.model_validate_json((folder / RUN_FILE).read_bytes())
    assert (saved.run, saved.total_steps) == (RUN, 3)
    assert saved.config["rollout"]["n"] == 2
    assert saved.digests.keys() == {"model", "tokenizer", "data.train_files"}


@in_virtual_time
async def test_a_head_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__save_freq=1, num_heldout=0)
    expected = await world.drive()

    world = await make_world(tmp_path / "upgraded", num_heldout=0)
    loop = RunLoop(await world.context())
    head = await loop._initialise()
    stored = json.loads(head.model_dump_json())
    for field in ("first_step", "leftover_rows", "critic", "critic_state", "reference", "kl_coef", "earlier_history"):
        del stored[field]
    fence = (await world.context()).fence
    assert await world.store.runs.advance(
        RUN,
        fence=fence,
        expected=head.model_dump_json().encode(),
        manifest=json.dumps(stored).encode(),
        history={},
    )
    assert (await world.drive()).policy.digest == expected.policy.digest
