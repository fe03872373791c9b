"""Data files of this machine on their way to a controller on another one."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from controller.cli.client import ControllerClient, Refused
from controller.cli.local_paths import LocalPath
from controller.cli.settings import Connection
from controller.cli.train_command import Config, located
from controller.cli.upload import check_sendable, send
from controller.runs.config.problems import ConfigInvalid
from controller.runs.data.dataset_id import id_of_file
from controller.runs.data.library import DatasetLibrary
from controller.runs.datasets import Datasets
from shared.store.memory import memory_store
from tests.unit.controller.api.fake_service import CONFIG, FakeService
from tests.unit.controller.api.serving import served
from tests.unit.controller.cli.conftest import Controller

ROWS = '{"prompt": "p", "answer": "a"}\n'


def datasets_in(folder: Path, max_bytes: int = 4 * 2**20) -> Datasets:
    return Datasets(DatasetLibrary(folder), memory_store(lambda: 0.0).runs, max_bytes=max_bytes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """This machine's files."""
    folder = tmp_path / "here"
    (folder / "saved").mkdir(parents=True)
    (folder / "train.jsonl").write_text(ROWS * 3)
    (folder / "held_out.jsonl").write_text(ROWS)
    (folder / "reward.py").write_text("")
    return folder


@pytest.fixture
def there(controller: Controller, tmp_path: Path) -> Datasets:
    """The datasets of the controller."""
    controller.service.datasets = datasets_in(tmp_path / "there")
    return controller.service.datasets


def config_file(folder: Path, **data: object) -> Path:
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(CONFIG | {"data": CONFIG["data"] | data}))
    return file


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no table folds its lines."""
    monkeypatch.setenv("COLUMNS", "600")


def uri(file: Path) -> str:
    return f"dataset://{id_of_file(file)}"


def test_a_runs_data_files_are_sent_and_named_by_their_content(
    controller: Controller, there: Datasets, folder: Path
) -> None:
    result = controller.command("train", str(config_file(folder)), "--upload", "--detach", "--json")
    assert result.exit_code == 0, result.output
    data = controller.service.records["run-0"].config["data"]
    assert data["train_files"] == [uri(folder / "train.jsonl")]
    assert data["val_files"] == [uri(folder / "held_out.jsonl")]
    stored = {dataset.name: dataset.num_rows for dataset in controller.call(there.list())}
    assert stored == {"train.jsonl": 3, "held_out.jsonl": 1}
    assert "train.jsonl was sent (93 B) and is dataset://" in result.stderr
    assert json.loads(result.stdout)["id"] == "run-0"


def test_what_the_controller_has_is_not_sent_again(
    controller: Controller, there: Datasets, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert controller.command("train", str(config_file(folder)), "--upload", "--dry-run").exit_code == 0
    monkeypatch.delattr(Datasets, "add")
    result = controller.command("train", str(config_file(folder)), "--upload", "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("is there already") == 2
    assert "was sent" not in result.stderr
    assert len(controller.call(there.list())) == 2


def test_files_of_overrides_and_lists_are_sent_and_what_is_not_here_is_left(
    controller: Controller, there: Datasets, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "extra.csv").write_text("prompt,answer\np,a\n")
    monkeypatch.chdir(folder / "more")
    given = ["hf://datasets/org/name/train.parquet", "on-the-controller.jsonl", "train.jsonl"]
    file = config_file(folder, train_files=given)
    arguments = ["data.val_files=[extra.csv]", "--upload", "--detach"]
    assert controller.command("train", str(file), *arguments).exit_code == 0
    data = controller.service.records["run-0"].config["data"]
    assert data["train_files"] == [*given[:2], uri(folder / "train.jsonl")]
    assert data["val_files"] == [uri(folder / "more" / "extra.csv")]


@pytest.mark.parametrize(
    "override",
    ["reward.custom_reward_function.path=reward.py", 'reward.parts=[{"name": "a", "function": "reward.py:score"}]'],
)
def test_reward_code_is_not_sent_and_nothing_else_either(
    controller: Controller, there: Datasets, folder: Path, override: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    result = controller.command("train", str(config_file(folder)), override, "--upload")
    assert result.exit_code == 2
    assert "reward.py is code of this machine, and a controller on another one takes none" in result.stderr
    assert "package.module:function" in result.stderr
    assert controller.call(there.list()) == []
    assert not controller.service.records


def test_a_folder_is_not_sent(controller: Controller, there: Datasets, folder: Path) -> None:
    result = controller.command("train", str(config_file(folder, train_files="saved")), "--upload")
    assert result.exit_code == 2
    assert "folder" in result.stderr
    assert controller.call(there.list()) == []


def test_a_bad_row_is_told_by_the_controller(controller: Controller, there: Datasets, folder: Path) -> None:
    (folder / "train.jsonl").write_text(ROWS + "{")
    result = controller.command("train", str(config_file(folder)), "--upload")
    assert result.exit_code == 2
    assert "nothing was stored" in result.stderr
    assert "train.jsonl line 2" in result.stderr
    assert not controller.service.records


def test_a_file_of_no_known_format_is_refused_by_its_key(controller: Controller, there: Datasets, folder: Path) -> None:
    (folder / "rows.txt").write_text(ROWS)
    result = controller.command("train", str(config_file(folder, train_files="rows.txt")), "--upload")
    assert result.exit_code == 2
    assert "data.train_files" in result.stderr
    assert ".jsonl" in result.stderr


def test_a_local_controller_is_sent_nothing_unless_asked(controller: Controller, there: Datasets, folder: Path) -> None:
    for arguments in ([], ["--no-upload"]):
        result = controller.command("train", str(config_file(folder)), "--dry-run", "--json", *arguments)
        assert json.loads(result.stdout)["config"]["data"]["train_files"] == [str(folder / "train.jsonl")]
    assert controller.call(there.list()) == []


def test_data_files_that_a_local_address_refuses_may_be_sent(
    controller: Controller, there: Datasets, folder: Path
) -> None:
    refused = ConfigInvalid([])
    refused.problems = tuple(problems_of("data.train_files"))
    controller.service.failure = refused
    hint = "--upload sends it the data files"
    assert hint in controller.command("train", str(config_file(folder))).stderr
    assert hint not in controller.command("train", str(config_file(folder)), "--no-upload").stderr
    refused.problems = tuple(problems_of("model.path"))
    assert hint not in controller.command("train", str(config_file(folder))).stderr


def problems_of(field: str) -> list:
    with pytest.raises(ConfigInvalid) as caught:
        check_sendable([LocalPath(field=field, key="reward.parts.function", given="x.py", place=Path("/x.py"))])
    return list(caught.value.problems)


class DistantClient(ControllerClient):
    """A client whose controller seems to be on another machine."""

    @property
    def is_local(self) -> bool:
        return False


@asynccontextmanager
async def distant(datasets: Datasets) -> AsyncIterator[ControllerClient]:
    service = FakeService()
    service.datasets = datasets
    async with served(service) as url, DistantClient(Connection(url=url, token=None)) as client:
        yield client


async def test_another_machines_controller_is_sent_the_files_unless_told_otherwise(
    folder: Path, tmp_path: Path
) -> None:
    config = Config(document={"model.path": "saved", "data.train_files": "train.jsonl"}, overrides=(), folder=folder)
    async with distant(datasets_in(tmp_path / "there")) as client:
        kept = await located(client, config, upload=False)
        sent = await located(client, config, upload=None)
    assert kept.document["data.train_files"] == str(folder / "train.jsonl")
    assert sent.document == {"model.path": "saved", "data.train_files": uri(folder / "train.jsonl")}


async def test_a_file_of_several_pieces_arrives_as_it_is(folder: Path, tmp_path: Path) -> None:
    (folder / "train.jsonl").write_text(ROWS * 100_000)
    notes: list[str] = []
    datasets = datasets_in(tmp_path / "there")
    path = LocalPath(field="data.train_files", key="data.train_files", given="t", place=folder / "train.jsonl")
    async with distant(datasets) as client:
        uris = await send(client, [path, path], notes.append)
    assert uris == {path.place: uri(path.place)}
    assert [dataset.num_rows for dataset in await datasets.list()] == [100_000]
    assert len(notes) == 1


async def test_a_file_that_is_too_large_is_refused_by_the_controller(folder: Path, tmp_path: Path) -> None:
    (folder / "train.jsonl").write_text(ROWS * 100_000)
    path = LocalPath(field="data.train_files", key="data.train_files", given="t", place=folder / "train.jsonl")
    async with distant(datasets_in(tmp_path / "there", max_bytes=1000)) as client:
        with pytest.raises(Refused, match="RLHFLESS_MAX_DATASET_BYTES") as refused:
            await send(client, [path], print)
    assert refused.value.status == 413


async def test_a_file_that_is_gone_is_named(folder: Path, tmp_path: Path) -> None:
    path = LocalPath(field="data.train_files", key="data.train_files", given="g", place=folder / "gone.jsonl")
    async with distant(datasets_in(tmp_path / "there")) as client:
        with pytest.raises(ConfigInvalid, match="cannot be read"):
            await send(client, [path], print)
