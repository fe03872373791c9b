"""Checkpoints on disk: complete or not there, whatever happens while they are written."""

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from controller.runs.checkpoints import (
    HISTORY_FILE,
    LENGTHS_FILE,
    MANIFEST_FILE,
    MODEL_FOLDER,
    POINTER_FILE,
    RUN_FILE,
    STATE_FILE,
    CheckpointFailed,
    SavedRun,
    describe,
    is_writable,
    newest_checkpoint,
    with_dtype,
    write_checkpoint,
)
from controller.runs.manifest import Checkpointed, Manifest
from shared.contracts.errors import MissingBlob
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.store.memory_blobs import MemoryBlobs
from tests.fakes.crash import Crash, failing
from tests.fakes.virtual import in_virtual_time

RUN = "the-run"
SAVED_RUN = SavedRun(run=RUN, config={"rollout": {"n": 4}}, digests={"model": "m"}, total_steps=10)
HISTORY = b'{"kind": "init", "step": 0}\n'
MANY = 100
"""More file operations than one checkpoint needs."""
CONFIG = '{"model_type": "llama", "dtype": "float32"}'


class Disk:
    """A model folder, a checkpoint root, and the blobs of a run."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "checkpoints" / "rlhfless" / "the-run"
        self.model = tmp_path / "model"
        self.model.mkdir(parents=True)
        (self.model / "config.json").write_text(CONFIG)
        for name in ("tokenizer.json", "chat_template.jinja", "merges.txt"):
            (self.model / name).write_text(name)
        for name in ("model.safetensors", "model.safetensors.index.json", "MANIFEST.json", "README.md"):
            (self.model / name).write_text("not to be copied")
        self.blobs = MemoryBlobs()

    async def head(self, step: int) -> Manifest:
        weights = await self.blobs.put(RUN, step, "weights", f"weights {step}".encode())
        state = await self.blobs.put(RUN, step, "state", f"state {step}".encode())
        policy = PolicyRef(version=step, model=ModelRef(path=str(self.model)), weights=weights)
        return Manifest(step=step, data_cursor=8 * step, policy=policy, state=state, run_seed=1)

    async def write(self, head: Manifest, fence: int = 1) -> Checkpointed:
        return await write_checkpoint(
            head,
            self.blobs,
            root=self.root,
            model_folder=self.model,
            saved_run=SAVED_RUN,
            history=HISTORY,
            fence=fence,
            metric=0.5,
        )

    def latest(self) -> int:
        """The step that the pointer names. Checks that it is complete, and that no folder in place is not."""
        assert all((folder / MANIFEST_FILE).is_file() for folder in self.root.glob("global_step_*"))
        step = int((self.root / POINTER_FILE).read_text())
        folder = self.root / f"global_step_{step}"
        assert Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes()).step == step
        assert (folder / MODEL_FOLDER / "model.safetensors").read_text() == f"weights {step}"
        assert (folder / MODEL_FOLDER / "tokenizer.json").read_text() == "tokenizer.json"
        assert (folder / STATE_FILE).read_text() == f"state {step}"
        assert (folder / HISTORY_FILE).read_bytes() == HISTORY
        assert SavedRun.model_validate_json((folder / RUN_FILE).read_bytes()) == SAVED_RUN
        assert newest_checkpoint(self.root) == folder
        return step

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@in_virtual_time
async def test_a_checkpoint_is_a_model_folder_with_the_learners_state(disk: Disk) -> None:
    head = await disk.head(3)
    written = await disk.write(head)
    folder = disk.root / "global_step_3"
    assert written == Checkpointed(step=3, folder=str(folder), policy=head.policy, state=head.state, metric=0.5)
    assert disk.latest() == 3
    assert sorted(path.name for path in folder.iterdir()) == [
        MANIFEST_FILE, HISTORY_FILE, MODEL_FOLDER, STATE_FILE, LENGTHS_FILE, RUN_FILE,
    ]  # fmt: skip
    model = folder / MODEL_FOLDER
    assert {path.name: path.read_text() for path in model.iterdir()} == {
        "config.json": CONFIG,
        "tokenizer.json": "tokenizer.json",
        "chat_template.jinja": "chat_template.jinja",
        "merges.txt": "merges.txt",
        "model.safetensors": "weights 3",
    }
    assert Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes()) == head
    assert disk.names() == ["global_step_3", POINTER_FILE]


@in_virtual_time
async def test_what_is_published_in_bfloat16_is_loaded_in_bfloat16(disk: Disk) -> None:
    plain = await disk.head(3)
    await disk.write(plain.model_copy(update={"policy": plain.policy.model_copy(update={"dtype": "bfloat16"})}))
    config = json.loads((disk.root / "global_step_3" / MODEL_FOLDER / "config.json").read_text())
    assert config == {"model_type": "llama", "dtype": "bfloat16"}


@pytest.mark.parametrize("config", ["{}", '{"torch_dtype":"float32"}', '{"dtype":  "float32", "a": 1}'])
def test_a_config_that_says_nothing_wrong_is_copied_as_it_is(config: str) -> None:
    assert with_dtype(config.encode(), "float32") == config.encode()


def test_a_loader_is_not_told_to_round_the_weights() -> None:
    said = json.loads(with_dtype(b'{"dtype": "bfloat16", "torch_dtype": "float16", "a": 1}', "float32"))
    assert said == {"dtype": "float32", "torch_dtype": "float32", "a": 1}


@in_virtual_time
async def test_every_blob_that_the_head_names_is_in_the_checkpoint(disk: Disk) -> None:
    plain = await disk.head(3)
    critic = await disk.blobs.put(RUN, 3, "critic", b"critic 3")
    head = plain.model_copy(
        update={
            "critic": plain.policy.model_copy(update={"weights": critic}),
            "critic_state": await disk.blobs.put(RUN, 3, "critic-state", b"critic state 3"),
            "reference": plain.policy.model_copy(
                update={"weights": await disk.blobs.put(RUN, 0, "weights", b"weights 0")}
            ),
            "kl_coef": 0.2,
            "leftover_rows": ("train-000001.e0",),
        }
    )
    written = await disk.write(head)
    folder = Path(written.folder)
    assert (written.critic, written.critic_state) == (head.critic, head.critic_state)
    assert (folder / "critic.weights.safetensors").read_bytes() == b"critic 3"
    assert (folder / "critic_state.safetensors").read_bytes() == b"critic state 3"
    assert (folder / "reference.weights.safetensors").read_bytes() == b"weights 0"
    assert Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes()) == head


def test_files_are_on_the_disk_before_they_are_in_their_place(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    synced_folders: list[str] = []

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            synced_folders.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            return
        assert not (disk.root / "global_step_3").exists() or (disk.root / f".{POINTER_FILE}.1").exists()
        synced.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    asyncio.run(write_three(disk))
    assert b"weights 3" in synced
    assert b"state 3" in synced
    assert b"tokenizer.json" in synced
    assert synced[-1] == b"3\n"
    beside = disk.root / ".global_step_3.1"
    assert synced_folders == [str(folder) for folder in (beside / MODEL_FOLDER, beside, disk.root, disk.root)]


async def write_three(disk: Disk) -> None:
    await disk.write(await disk.head(3))


@in_virtual_time
async def test_before_the_first_update_there_is_no_learner_state(disk: Disk) -> None:
    head = (await disk.head(3)).model_copy(update={"state": None})
    await disk.write(head)
    assert not (disk.root / "global_step_3" / STATE_FILE).exists()


@in_virtual_time
async def test_the_pointer_names_the_newest(disk: Disk) -> None:
    for step in (3, 6, 9):
        await disk.write(await disk.head(step))
        assert disk.latest() == step
    assert disk.names() == ["global_step_3", "global_step_6", "global_step_9", POINTER_FILE]


async def crash_everywhere(disk: Disk, head: Manifest, expected: set[int]) -> None:
    """Write ``head`` with a crash after 0, 1, 2... changes of files: a complete one of ``expected`` stays."""
    for num_changes in range(MANY):
        with failing(num_changes, Crash(), lasting=True) as fault, contextlib.suppress(Crash):
            await disk.write(head)
        assert disk.latest() in expected, f"after {num_changes} changes"
        if not fault.has_struck:
            return
    raise AssertionError(f"still not written after {MANY} changes")


@in_virtual_time
async def test_a_crash_at_any_moment_leaves_a_complete_checkpoint(disk: Disk) -> None:
    await disk.write(await disk.head(3))
    head = await disk.head(6)
    await crash_everywhere(disk, head, {3, 6})
    assert disk.latest() == 6
    assert disk.names() == ["global_step_3", "global_step_6", POINTER_FILE]


@in_virtual_time
async def test_writing_the_same_step_again_never_takes_it_away(disk: Disk) -> None:
    head = await disk.head(6)
    await disk.write(head)
    await crash_everywhere(disk, head, {6})


@in_virtual_time
async def test_what_a_crashed_owner_left_is_removed_by_the_next_but_not_the_other_way_round(disk: Disk) -> None:
    newer, older = disk.root / ".global_step_3.7", disk.root / ".global_step_3.4"
    for folder in (newer, older):
        folder.mkdir(parents=True)
        (folder / "half").write_text("x")
    await disk.write(await disk.head(6), fence=5)
    assert newer.exists()
    assert not older.exists()


@in_virtual_time
async def test_a_step_of_another_run_in_the_same_place_is_replaced(disk: Disk) -> None:
    await disk.write(await disk.head(3))
    other = (await disk.head(3)).model_copy(update={"run_seed": 2})
    await disk.write(other)
    assert Manifest.model_validate_json((disk.root / "global_step_3" / MANIFEST_FILE).read_bytes()) == other
    assert disk.names() == ["global_step_3", POINTER_FILE]


@in_virtual_time
async def test_a_disk_that_fails_is_a_named_failure_that_leaves_nothing_behind(disk: Disk) -> None:
    last = 3
    await disk.write(await disk.head(last))
    failures: list[str] = []
    for num_changes in range(MANY):
        step = 10 + num_changes
        with failing(num_changes, OSError(errno.ENOSPC, "No space left on device"), lasting=False) as fault:
            try:
                await disk.write(await disk.head(step))
            except CheckpointFailed as error:
                failures.append(str(error))
            else:
                last = step
        assert disk.latest() == last, f"after {num_changes} changes"
        assert [name for name in disk.names() if name.startswith(".global")] == []
        if not fault.has_struck:
            break
    assert len(failures) > 5
    assert all("No space left on device" in failure for failure in failures)
    assert all("trainer.default_local_dir" in failure for failure in failures)


@in_virtual_time
async def test_a_root_that_cannot_be_written_is_a_named_failure(disk: Disk) -> None:
    disk.root.parent.parent.write_text("a file where a folder should be")
    with pytest.raises(CheckpointFailed, match=r"global_step_3.*then resume the run"):
        await disk.write(await disk.head(3))
    assert is_writable(disk.root) == "Not a directory"


@in_virtual_time
async def test_weights_that_are_gone_are_not_checkpointed(disk: Disk) -> None:
    head = await disk.head(3)
    await disk.blobs.delete_run(RUN)
    with pytest.raises(MissingBlob):
        await disk.write(head)
    assert disk.names() == []


def test_looking_whether_a_root_can_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    assert is_writable(tmp_path) is None
    assert is_writable(tmp_path / "a" / "b") is None
    assert list(tmp_path.iterdir()) == []
    with failing(0, OSError(errno.EROFS, "Read-only file system"), lasting=True):
        assert is_writable(tmp_path / "a") == "Read-only file system"


def test_without_any_checkpoint_there_is_no_newest(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "nowhere") is None
    (tmp_path / "global_step_3").mkdir()
    (tmp_path / POINTER_FILE).write_text("3\n")
    assert newest_checkpoint(tmp_path) is None, "it has no manifest"


@in_virtual_time
async def test_where_the_pointers_checkpoint_was_removed_the_last_complete_one_is_the_newest(disk: Disk) -> None:
    for step in (9, 10, 11):
        await disk.write(await disk.head(step))
    shutil.rmtree(disk.root / "global_step_11")
    assert newest_checkpoint(disk.root) == disk.root / "global_step_10"
    (disk.root / POINTER_FILE).write_text("half a nu")
    assert newest_checkpoint(disk.root) == disk.root / "global_step_10"


@in_virtual_time
async def test_a_description_tells_step_size_and_place(disk: Disk) -> None:
    written = await disk.write(await disk.head(3))
    [info] = describe((written,))
    folder = disk.root / "global_step_3"
    assert (info.step, info.folder, info.metric) == (3, str(folder), 0.5)
    assert info.num_bytes == sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert info.created_at == (folder / MANIFEST_FILE).stat().st_mtime


def test_a_checkpoint_that_was_removed_by_hand_is_not_described(tmp_path: Path) -> None:
    ref = BlobRef(id="r/000001/w", num_bytes=0, sha256=hashlib.sha256(b"").hexdigest())
    policy = PolicyRef(version=1, model=ModelRef(path="m"), weights=ref)
    assert describe((Checkpointed(step=1, folder=str(tmp_path / "gone"), policy=policy, state=None),)) == []
