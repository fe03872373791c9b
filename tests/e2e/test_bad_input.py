"""A config that cannot run is refused with field, reason and what to do; then there is no run and no replica."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.stack import Stack
from tests.e2e.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """Something wrong: by keys of the config, or by rows of the training file."""

    field: str
    reason: str
    suggestion: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[Mapping[str, Any], ...] | None = None


GOOD_ROW = {"prompt": "1+1=", "answer": "2"}
CASES = {
    "unknown model": Bad(
        changes={"model.path": "gone"},
        field="model.path",
        reason="'gone' does not exist under",
        suggestion="relative paths start at a root",
    ),
    "model of a hub": Bad(
        changes={"model.path": "someone/gone"},
        field="model.path",
        reason="'someone/gone' does not exist under",
        suggestion="put the model under a root",
    ),
    "model without config": Bad(
        changes={"model.path": "."},
        field="model.path",
        reason="it has no config.json",
        suggestion="name a folder with config.json",
    ),
    "unknown dataset": Bad(
        changes={"data.train_files": "gone.jsonl"},
        field="data.train_files",
        reason="'gone.jsonl' does not exist under",
        suggestion="correct the path",
    ),
    "outside the roots": Bad(
        changes={"data.train_files": "/etc/hostname"},
        field="data.train_files",
        reason="'/etc/hostname' lies outside the roots",
        suggestion="put it under one of them",
    ),
    "outside by dots": Bad(
        changes={"data.train_files": "../../../../../../etc/hostname"},
        field="data.train_files",
        reason="lies outside the roots",
        suggestion="put it under one of them",
    ),
    "outside by a link": Bad(
        changes={"data.train_files": "link.jsonl"},
        field="data.train_files",
        reason="'link.jsonl' lies outside the roots",
        suggestion="put it under one of them",
    ),
    "model outside by a link": Bad(
        changes={"model.path": "linked"},
        field="model.path",
        reason="'linked' lies outside the roots",
        suggestion="put it under one of them",
    ),
    "unknown key": Bad(
        changes={"rollout.temprature": 0.7},
        field="rollout.temprature",
        reason="unknown key",
        suggestion="rollout.temperature",
    ),
    "unknown section": Bad(
        changes={"trainr.seed": 1}, field="trainr.seed", reason="unknown key", suggestion="trainer.seed"
    ),
    "group of one": Bad(
        changes={"rollout.n": 1},
        field="rollout.n",
        reason="a group of 1 has nothing to compare",
        suggestion="use at least 2",
    ),
    "unknown rule": Bad(
        changes={"reward.rule": "exact_mach", "reward.custom_reward_function.path": None},
        field="reward.rule",
        reason="it should be 'exact_match', 'exact_number', ",
        suggestion="a built-in verifier",
    ),
    "no context left": Bad(
        changes={"data.max_response_length": 4096},
        field="data.max_response_length",
        reason="leave no room for a prompt in a context of 4096",
        suggestion="use less than 4096",
    ),
    "zero-length prompt": Bad(
        rows=(GOOD_ROW, {"prompt": "", "answer": "2"}),
        field="data.train_files",
        reason="line 2: column 'prompt' is empty: the prompt has no token",
        suggestion="drop the row",
    ),
    "prompt longer than the context": Bad(
        rows=(GOOD_ROW, {"prompt": "1" * 4090, "answer": "2"}),
        changes={"data.max_prompt_length": 8000},
        field="data.train_files",
        reason="line 2: the prompt has 4090 tokens, more than 4080: the model's context of 4096",
        suggestion="lower data.max_response_length, shorten the row",
    ),
    "prompt longer than allowed": Bad(
        rows=({"prompt": "1" * 17, "answer": "2"}, GOOD_ROW),
        field="data.train_files",
        reason="line 1: the prompt has 17 tokens, more than data.max_prompt_length, 16",
        suggestion="raise data.max_prompt_length",
    ),
    "row without its prompt": Bad(
        rows=(GOOD_ROW, {"answer": "2"}),
        field="data.train_files",
        reason="line 2: column 'prompt' is missing or null",
        suggestion="drop the row",
    ),
    "row without its answer": Bad(
        rows=(GOOD_ROW, {"prompt": "1+1="}),
        field="data.train_files",
        reason="line 2: column 'answer' is missing or null",
        suggestion="drop the row",
    ),
    "no column of a known name": Bad(
        rows=({"text": "1+1="},),
        field="data.train_files",
        reason="no column is known to hold the prompt; the columns are text",
        suggestion="data.prompt_key",
    ),
    "named column that is not there": Bad(
        changes={"data.prompt_key": "promt"},
        field="data.prompt_key",
        reason="there is no column 'promt'; the columns are answer, prompt",
        suggestion="name one of them",
    ),
    "empty dataset": Bad(
        rows=(), field="data.train_files", reason="there is no row in", suggestion="name a file with rows"
    ),
}


@pytest.fixture(scope="module", autouse=True)
def links(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Links under the root that lead out of it, to what would be fine there."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "train.jsonl").write_text((workspace.root / "train.jsonl").read_text())
    (workspace.root / "link.jsonl").symlink_to(outside / "train.jsonl")
    shutil.copytree(workspace.model, outside / "model")
    (workspace.root / "linked").symlink_to(outside / "model")


@pytest.mark.parametrize("bad", CASES.values(), ids=CASES.keys())
def test_it_is_refused_and_nothing_is_started(stack: Stack, workspace: Workspace, bad: Bad) -> None:
    changes = dict(bad.changes)
    if bad.rows is not None:
        changes["data.train_files"] = workspace.rows("bad", bad.rows)
    runs, replicas = stack.api.runs(), stack.replicas()
    answer = stack.api.request("POST", "/v1/runs", json=workspace.config(changes))
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["code"] == "config_invalid"
    assert "nothing was started" in problem["message"]
    [told] = [told for told in problem["problems"] if told["field"] == bad.field]
    assert bad.reason in told["reason"]
    assert bad.suggestion in told["suggestion"]
    assert len(problem["problems"]) == 1
    assert stack.api.runs() == runs
    assert not stack.replicas() - replicas


def test_all_that_is_wrong_is_told_at_once(stack: Stack, workspace: Workspace) -> None:
    config = workspace.config({"rollout.n": 1, "rollout.temprature": 1, "actor.optim.lr": -1, "data.seed": "x"})
    answer = stack.api.request("POST", "/v1/runs", json=config)
    assert answer.status_code == 422
    fields = {problem["field"] for problem in answer.json()["problems"]}
    assert fields == {"rollout.n", "rollout.temprature", "actor.optim.lr", "data.seed"}


def test_a_checkpoint_folder_that_cannot_be_made(stack: Stack, workspace: Workspace) -> None:
    file = workspace.root / "a-file"
    file.write_text("")
    runs = stack.api.runs()
    for folder in (file, file / "below"):
        config = workspace.config({"trainer.default_local_dir": str(folder)})
        answer = stack.api.request("POST", "/v1/runs", json=config)
        assert answer.status_code == 422, answer.text
        [told] = answer.json()["problems"]
        assert told["field"] == "trainer.default_local_dir"
        assert str(folder) in told["reason"]
        assert "folder" in told["suggestion"]
    assert stack.api.runs() == runs


def test_the_path_of_a_run_that_is_not_there(stack: Stack) -> None:
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/resume"), ("DELETE", "")):
        answer = stack.api.request(method, f"/v1/runs/no-such-run{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "run_unknown")
