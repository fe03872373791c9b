"""A new run from a checkpoint folder: the same steps as an uninterrupted run, or reasons why not.

Weights, states and scores of the fakes are hashes of all that they depend on, so equal digests are equal work.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.runs.checkpoints import (
    HISTORY_FILE,
    LENGTHS_FILE,
    MANIFEST_FILE,
    MODEL_FOLDER,
    RUN_FILE,
    SavedRun,
    newest_checkpoint,
)
from controller.runs.config.problems import ConfigInvalid
from controller.runs.fingerprint import fingerprint
from controller.runs.loop import RunLoop
from controller.runs.manifest import Manifest
from controller.runs.resumption import (
    check_fits,
    differences,
    find_checkpoint,
    import_checkpoint,
    read_checkpoint,
    saved_run,
)
from shared.contracts.call import BatchKey
from shared.contracts.stage import Purpose
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, config_of, make_world, prepared_of

SIX, TEN = {"trainer__total_training_steps": 6}, {"trainer__total_training_steps": 10}
EVERY = {"trainer__test_freq": 2, "trainer__save_freq": 3, "num_heldout": 4}


async def go_on(world: World, folder: Path) -> Manifest:
    """Drive the world's run from a checkpoint to its end."""
    return await RunLoop(replace(await world.context(), resume_from=folder)).drive()


def work(head: Manifest) -> dict[str, Any]:
    """What the head stands for, wherever its blobs lie."""
    assert head.state is not None
    return {
        "step": head.step,
        "cursor": head.data_cursor,
        "weights": head.policy.digest,
        "state": head.state.sha256,
        "seed": head.run_seed,
        "evaluated": head.evaluated,
    }


def measured(lines: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Metrics without times, and without what plans made of them."""
    return [
        {
            name: value
            for name, value in line["metrics"].items()
            if not name.startswith(("timing_s/", "schedule/")) or name.startswith("schedule/lengths/")
        }
        for line in lines
    ]


@pytest.mark.parametrize("batch_size", [4, 3])
@in_virtual_time
async def test_steps_after_a_checkpoint_are_those_of_a_run_that_never_stopped(tmp_path: Path, batch_size: int) -> None:
    """8 rows: 6 steps of 4 end with an epoch; of 3, in the middle of a batch that runs over an epoch's end."""
    size = {"data__train_batch_size": batch_size}
    whole = await make_world(tmp_path / "whole", **TEN, **EVERY, **size)
    expected = await whole.drive()

    first = await make_world(tmp_path / "first", **SIX, **EVERY, **size)
    await first.drive()
    folder = newest_checkpoint(first.checkpoint_root)
    assert folder is not None
    second = await make_world(tmp_path / "second", **TEN, **EVERY, **size)
    head = await go_on(second, folder)

    assert work(head) == work(expected)
    trained = {**first.stages.learner.trained, **second.stages.learner.trained}
    assert trained == whole.stages.learner.trained
    assert second.stages.learner.trained.keys() == {6, 7, 8, 9}
    for kind in ("step", "eval"):
        lines = [*await first.history(kind), *await second.history(kind)]
        there = await whole.history(kind)
        assert [line["step"] for line in lines] == [line["step"] for line in there]
        assert measured(lines) == measured(there)


@in_virtual_time
async def test_a_run_tells_what_it_began_from_and_its_checkpoints_have_the_whole_history(tmp_path: Path) -> None:
    first = await make_world(tmp_path / "first", **SIX, **EVERY)
    await first.drive()
    second = await make_world(tmp_path / "second", **TEN, **EVERY)
    head = await go_on(second, first.checkpoint_root / "global_step_6")
    told = [f"{line['kind']} {line['step']}" for line in await second.store.runs.history(RUN)]
    assert told == [
        "resume 6", "step 6", "step 7", "eval 8", "step 8", "checkpoint 9", "step 9", "eval 10", "checkpoint 10",
    ]  # fmt: skip
    [begun] = await second.history("resume")
    assert begun["checkpoint"] == str(first.checkpoint_root / "global_step_6")
    assert "ledger" in begun
    assert (head.first_step, [checkpoint.step for checkpoint in head.checkpoints]) == (6, [9, 10])
    kept = (second.checkpoint_root / "global_step_10" / HISTORY_FILE).read_text().splitlines()
    steps = [line["step"] for line in map(json.loads, kept) if line["kind"] == "step"]
    assert steps == list(range(10))
    assert all("ledger" in line for line in map(json.loads, kept) if line["kind"] == "step")


@in_virtual_time
async def test_a_checkpoint_of_a_run_that_began_from_one_is_as_good(tmp_path: Path) -> None:
    whole = await make_world(tmp_path / "whole", **TEN, num_heldout=0)
    expected = await whole.drive()
    folder: Path | None = None
    for part, steps in enumerate((3, 7, 10)):
        world = await make_world(tmp_path / str(part), trainer__total_training_steps=steps, num_heldout=0)
        head = await (world.drive() if folder is None else go_on(world, folder))
        folder = world.checkpoint_root / f"global_step_{steps}"
        # The blobs that it began from are gone once it went on; those of its checkpoint are kept.
        assert await world.blobs.purge(RUN, before_step=steps, keep=head.kept_blobs()) == 0
    assert work(head) == work(expected)
    assert folder is not None
    kept = (folder / HISTORY_FILE).read_text().splitlines()
    assert [line["step"] for line in map(json.loads, kept) if line["kind"] == "step"] == list(range(10))


@in_virtual_time
async def test_a_run_that_is_killed_after_it_began_from_a_checkpoint_goes_on_at_its_head(tmp_path: Path) -> None:
    whole = await make_world(tmp_path / "whole", **TEN, num_heldout=0)
    expected = await whole.drive()
    first = await make_world(tmp_path / "first", **SIX, num_heldout=0)
    await first.drive()
    second = await make_world(tmp_path / "second", **TEN, num_heldout=0)
    loop = RunLoop(replace(await second.context(), resume_from=first.checkpoint_root / "global_step_6"))
    await loop._begin()
    shutil.rmtree(first.checkpoint_root)
    assert work(await second.drive()) == work(expected)


@in_virtual_time
async def test_the_parts_of_a_head_that_an_algorithm_adds_come_along(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__total_training_steps=2)
    loop = RunLoop(await world.context())
    plain = await loop._initialise()
    critic = await world.blobs.put(RUN, 0, "critic", b"critic")
    full = plain.model_copy(
        update={
            "step": 1,
            "critic": plain.policy.model_copy(update={"weights": critic}),
            "critic_state": await world.blobs.put(RUN, 1, "critic-state", b"critic state"),
            "reference": plain.policy,
            "kl_coef": 0.125,
            "leftover_rows": ("train-000007.e0",),
        }
    )
    await loop._advance(plain, full, {"kind": "step", "step": 0, "metrics": {}})
    await loop._checkpoint(full)
    other = await make_world(tmp_path / "other", trainer__total_training_steps=2)
    context = replace(await other.context(), resume_from=world.checkpoint_root / "global_step_1")
    head = await RunLoop(context)._begin()
    assert (head.kl_coef, head.leftover_rows) == (0.125, ("train-000007.e0",))
    assert head.critic is not None
    assert head.critic_state is not None
    assert head.reference is not None
    assert await other.blobs.get(head.critic.weights) == b"critic"
    assert await other.blobs.get(head.critic_state) == b"critic state"
    assert await other.blobs.get(head.reference.weights) == await world.blobs.get(plain.policy.weights)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint after 3 steps."""

    @in_virtual_time
    async def run() -> None:
        world = await make_world(tmp_path / "made", num_heldout=0, actor__optim__lr_scheduler_type="linear")
        await world.drive()

    run()
    return tmp_path / "made" / "checkpoints" / "global_step_3"


def problems_with(folder: Path, tmp_path: Path, num_rows: int = 8, **overrides: Any) -> dict[str, str]:
    """What is wrong with going on, by key."""
    config = config_of(**{"actor__optim__lr_scheduler_type": "linear", **overrides})
    prepared = prepared_of(config, tmp_path / "made" / "model", num_rows=num_rows)
    return {p.field: str(p) for p in differences(read_checkpoint(folder).run, saved_run("", prepared), folder)}


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"rollout__n": 3}, "rollout.n"),
        ({"rollout__dtype": "bfloat16"}, "rollout.dtype"),
        ({"trainer__seed": 43}, "trainer.seed"),
        ({"data__shuffle": False}, "data.shuffle"),
        ({"data__train_batch_size": 2}, "data.train_batch_size"),
        ({"actor__optim__lr": 0.5}, "actor.optim.lr"),
        ({"actor__clip_ratio_high": 0.3}, "actor.clip_ratio_high"),
        ({"reward__rule": "exact_number"}, "reward.rule"),
        ({"trainer__total_training_steps": 5}, "trainer.total_training_steps"),
        ({"num_rows": 7}, "data.train_files"),
    ],
)
def test_what_changes_a_steps_meaning_is_refused(
    folder: Path, tmp_path: Path, overrides: dict[str, Any], field: str
) -> None:
    problems = problems_with(folder, tmp_path, **overrides)
    assert field in problems
    assert f"model.path={folder / MODEL_FOLDER}" in problems[field]


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"trainer__save_freq": 1, "trainer__test_freq": 1, "trainer__project_name": "other"},
        {"trainer__logger": ["wandb"], "trainer__max_ckpt_to_keep": 1},
        {"rollout__num_actors": 3, "rollout__max_num_seqs": 2, "platform__threads": 1},
        {"rollout__val_kwargs__n": 4, "rollout__val_kwargs__temperature": 1.0, "data__val_files": "other.jsonl"},
        {"data__train_files": "/elsewhere/train.jsonl", "model__path": "/elsewhere/tiny"},
        {"reward__timeout_s": 3.0},
        {"actor__ppo_max_token_len_per_gpu": 1000},
    ],
)
def test_what_changes_none_is_free(folder: Path, tmp_path: Path, overrides: dict[str, Any]) -> None:
    assert problems_with(folder, tmp_path, **overrides) == {}


def test_the_tokens_of_a_forward_pass_are_free_in_every_stage(folder: Path, tmp_path: Path) -> None:
    asked = {"algorithm__adv_estimator": "gae", "actor__use_kl_loss": True}
    budgets = {"critic__ppo_max_token_len_per_gpu": 1000, "reference__log_prob_max_token_len_per_gpu": 1000}
    assert problems_with(folder, tmp_path, **asked, **budgets).keys() == problems_with(folder, tmp_path, **asked).keys()


def test_another_model_or_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "made" / "model"
    (model / "config.json").write_text('{"model_type": "llama", "transformers_version": "9"}')
    assert problems_with(folder, tmp_path) == {}, "what saved the config changes nothing"
    (model / "config.json").write_text('{"model_type": "llama", "hidden_size": 8}')
    assert "model: its content" in problems_with(folder, tmp_path)["model.path"]
    shutil.copy(folder / MODEL_FOLDER / "config.json", model)
    (model / "tokenizer.json").write_text('{"version": "1.0", "model": {}}')
    assert "tokenizer: its content" in problems_with(folder, tmp_path)["model.path"]


def test_the_critics_and_the_references_model_count_by_content_and_not_by_place(tmp_path: Path) -> None:
    for name, hidden_size in (("a", 8), ("b", 8), ("c", 16)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"hidden_size": hidden_size, "_name_or_path": name}))
    asked = {"algorithm__adv_estimator": "gae", "actor__use_kl_loss": True}

    def saved(folder: str | None) -> SavedRun:
        keys = ("critic.model.path", "reference.model.path")
        paths = {} if folder is None else {key.replace(".", "__"): str(tmp_path / folder) for key in keys}
        prepared = prepared_of(config_of(**asked, **paths), tmp_path / "a")
        others = {} if folder is None else dict.fromkeys(keys, tmp_path / folder)
        return saved_run("", replace(prepared, other_models=others))

    assert differences(saved("a"), saved("b"), tmp_path) == []
    for other in ("c", None):
        fields = [problem.field for problem in differences(saved("a"), saved(other), tmp_path)]
        assert fields == ["critic.model.path", "reference.model.path"]


@in_virtual_time
async def test_critic_and_reference_go_on_with_their_models_as_the_new_run_names_them(tmp_path: Path) -> None:
    asked = {"algorithm__adv_estimator": "gae", "actor__use_kl_loss": True, **SIX}
    first = await make_world(tmp_path / "first", **asked, critic__model__path="/old/critic", model__path="/old/policy")
    await first.drive()
    saved = read_checkpoint(first.checkpoint_root / "global_step_6")
    here = {"critic__model__path": "/new/critic", "model__path": "/new/policy"}
    prepared = prepared_of(config_of(**asked, **here), tmp_path)
    head = await import_checkpoint(saved, RUN, prepared, first.blobs)
    assert head.critic is not None
    assert head.reference is not None
    models = [policy.model.path for policy in (head.policy, head.critic, head.reference)]
    assert models == ["/new/policy", "/new/critic", "/new/policy"]


def test_the_reward_functions_content_counts_and_not_its_place(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    digests = []
    for name, source in (("a", "one"), ("b", "one"), ("b", "two")):
        (tmp_path / name).write_text(source)
        config = config_of(reward__rule=None, reward__custom_reward_function__path=str(tmp_path / name))
        digests.append(fingerprint(prepared_of(config, tmp_path))["reward.custom_reward_function.path"])
    assert digests[0] == digests[1] != digests[2]


def test_the_content_of_a_parts_function_counts_and_not_its_place(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    saved = {}
    for folder, content in (("a", "one"), ("b", "one"), ("c", "two")):
        file = tmp_path / folder / "score.py"
        file.parent.mkdir()
        file.write_text(content)
        for name in ("score", "other"):
            parts = [{"name": "p", "function": f"{file}:{name}"}, {"name": "q", "rule": "math"}]
            config = config_of(reward__rule=None, reward__parts=parts)
            saved[folder, name] = saved_run("", prepared_of(config, tmp_path))
    before = saved["a", "score"]
    assert differences(before, saved["b", "score"], tmp_path) == []
    assert [p.field for p in differences(before, saved["c", "score"], tmp_path)] == ["reward.parts.0.function"]
    assert [p.field for p in differences(before, saved["b", "other"], tmp_path)] == ["reward.parts"]


def test_a_text_that_names_a_file_by_chance_or_by_design_is_not_read(tmp_path: Path) -> None:
    """Only files of user functions lie under the roots: a digest of any other would tell what is in it."""
    (tmp_path / "config.json").write_text("{}")
    outside = tmp_path / "secret"
    outside.write_text("hunter2")
    parts = [
        {"name": "p", "rule": "regex", "parameters": {"pattern": str(outside)}},
        {"name": "q", "remote": {"url": "http://judge.svc/score", "tensors": {"text": str(outside)}}},
    ]
    prepared = prepared_of(config_of(reward__rule=None, reward__parts=parts), tmp_path)
    assert fingerprint(prepared).keys() == {"model", "tokenizer", "data.train_files"}


def test_a_checkpoint_at_the_runs_end_or_behind_it_is_refused(folder: Path, tmp_path: Path) -> None:
    prepared = prepared_of(config_of(actor__optim__lr_scheduler_type="linear"), tmp_path / "made" / "model")
    with pytest.raises(ConfigInvalid, match="is at step 3 and the run ends at step 3: it would do nothing"):
        check_fits(read_checkpoint(folder), prepared)


@pytest.mark.parametrize("file", [f"{MODEL_FOLDER}/model.safetensors", "learner_state.safetensors"])
def test_a_damaged_blob_is_refused_by_name_and_nothing_begins(tmp_path: Path, file: str) -> None:
    @in_virtual_time
    async def run() -> None:
        first = await make_world(tmp_path / "first", **SIX)
        await first.drive()
        damaged = first.checkpoint_root / "global_step_6" / file
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
        second = await make_world(tmp_path / "second", **TEN)
        with pytest.raises(ConfigInvalid, match=f"{damaged.name} is damaged"):
            await go_on(second, first.checkpoint_root / "global_step_6")
        assert await second.store.runs.head(RUN) is None
        damaged.unlink()
        with pytest.raises(ConfigInvalid, match="No such file"):
            await go_on(second, first.checkpoint_root / "global_step_6")

    run()


@in_virtual_time
async def test_a_checkpoint_without_its_history_is_refused_and_nothing_begins(tmp_path: Path) -> None:
    first = await make_world(tmp_path / "first", **SIX)
    await first.drive()
    folder = first.checkpoint_root / "global_step_6"
    (folder / HISTORY_FILE).unlink()
    second = await make_world(tmp_path / "second", **TEN)
    with pytest.raises(ConfigInvalid, match=HISTORY_FILE):
        await go_on(second, folder)
    assert await second.store.runs.head(RUN) is None


@in_virtual_time
async def test_lengths_of_earlier_epochs_come_along(tmp_path: Path) -> None:
    first = await make_world(tmp_path / "first", **SIX)
    await first.drive()
    folder = first.checkpoint_root / "global_step_6"
    before = await first.store.records.all_lengths(RUN)
    assert len((folder / LENGTHS_FILE).read_text().splitlines()) == len(before) == 8
    second = await make_world(tmp_path / "second", **TEN)
    loop = RunLoop(replace(await second.context(), resume_from=folder))
    await loop._begin()
    assert await second.store.records.all_lengths(RUN) == before


@in_virtual_time
async def test_a_damaged_length_history_is_refused_and_a_missing_one_is_none(tmp_path: Path) -> None:
    first = await make_world(tmp_path / "first", **SIX)
    await first.drive()
    folder = first.checkpoint_root / "global_step_6"
    (folder / LENGTHS_FILE).write_text('{"row": "train-000001", "epochs": [[0, [-1]]]}')
    second = await make_world(tmp_path / "second", **TEN)
    with pytest.raises(ConfigInvalid, match=LENGTHS_FILE):
        await go_on(second, folder)
    assert await second.store.runs.head(RUN) is None
    (folder / LENGTHS_FILE).unlink()
    assert (await go_on(second, folder)).step == 10


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        (MANIFEST_FILE, "{}", "damaged, or another version"),
        (RUN_FILE, '{"format": 2}', "damaged, or another version"),
        (RUN_FILE, None, "No such file"),
    ],
)
def test_records_that_cannot_be_read_are_refused(folder: Path, file: str, content: str | None, reason: str) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(ConfigInvalid, match=reason):
        read_checkpoint(folder)


def test_a_path_is_a_checkpoint_or_a_runs_folder_of_which_the_newest_is_taken(folder: Path, tmp_path: Path) -> None:
    def found(path: str) -> Path | None:
        config = config_of(trainer__resume_mode="resume_path", trainer__resume_from_path=path)
        return find_checkpoint(config, [tmp_path], tmp_path / "elsewhere")

    assert found("made/checkpoints/global_step_3") == folder
    assert found("made/checkpoints") == folder
    with pytest.raises(ConfigInvalid, match="no complete checkpoint"):
        found("made/model")
    with pytest.raises(ConfigInvalid, match="does not exist"):
        found("made/checkpoints/global_step_4")
    with pytest.raises(ConfigInvalid, match="outside the roots"):
        found("/etc")
    in_store = config_of(trainer__resume_mode="resume_path", trainer__resume_from_path="global_step_3")
    assert find_checkpoint(in_store, [], folder.parent) == folder, "the controller's own checkpoints are a root"


def test_nothing_is_looked_for_unless_it_is_asked_for(folder: Path) -> None:
    assert find_checkpoint(config_of(), [folder], folder) is None


def test_auto_takes_the_newest_checkpoint_of_the_experiment(tmp_path: Path) -> None:
    def auto(experiment: str) -> Path | None:
        config = config_of(trainer__resume_mode="auto", trainer__experiment_name=experiment)
        return find_checkpoint(config, [], tmp_path / "all")

    @in_virtual_time
    async def run(run: str, experiment: str) -> None:
        world = await make_world(tmp_path / run, trainer__experiment_name=experiment, trainer__save_freq=2)
        await world.drive()
        shutil.copytree(world.checkpoint_root, tmp_path / "all" / "rlhfless" / run)

    assert auto("mine") is None
    run("run-1", "mine")
    run("run-2", "other")
    assert auto("mine") == tmp_path / "all" / "rlhfless" / "run-1" / "global_step_3"
    run("run-3", "mine")
    assert auto("mine") == tmp_path / "all" / "rlhfless" / "run-3" / "global_step_3"
    (tmp_path / "all" / "rlhfless" / "run-3" / "global_step_3" / RUN_FILE).write_text("half")
    assert auto("mine") == tmp_path / "all" / "rlhfless" / "run-3" / "global_step_2"
    other = tmp_path / "all" / "rlhfless" / "run-2" / "global_step_3" / RUN_FILE
    other.write_text(json.dumps({**json.loads(other.read_text()), "config": {}}))
    assert auto("mine") == tmp_path / "all" / "rlhfless" / "run-3" / "global_step_2"


@in_virtual_time
async def test_batches_of_the_new_run_are_its_own(tmp_path: Path) -> None:
    first = await make_world(tmp_path / "first", **SIX)
    await first.drive()
    second = await make_world(tmp_path / "second", **TEN)
    await go_on(second, first.checkpoint_root / "global_step_6")
    for step in range(10):
        assert await second.store.work.num_samples(BatchKey(run=RUN, purpose=Purpose.TRAIN, step=step)) == 0
