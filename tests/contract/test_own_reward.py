"""The example of an own reward function keeps the contract, and is put into its image as the Services start it."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from controller.conformance.settings import ConformanceSettings
from controller.conformance.trial import try_function
from controller.platforms.local.redis_server import RedisServer
from shared.contracts.call import StageReply
from shared.contracts.reward import RewardOutputs, Scores
from shared.store.base import Store
from shared.store.directory_blobs import DirectoryBlobs
from tests.contract.batch import MODEL, Batch
from tests.contract.function_process import REPOSITORY, Functions
from tests.manifests.function_rules import container
from tests.manifests.tree import FUNCTIONS, documents

EXAMPLE = REPOSITORY / "scripts" / "examples" / "own_reward"


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_reward", EXAMPLE / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("completion", "reward"), [("42", 1.0), ("it 42", 0.4), ("43", 0.0), ("", 0.0)])
def test_its_reward(completion: str, reward: float) -> None:
    assert example().reward_of(completion, "42") == reward


async def test_it_conforms_and_scores(
    functions: Functions, redis_server: RedisServer, store: Store, blobs: DirectoryBlobs
) -> None:
    batch = Batch(store, blobs, run="run-own-reward")
    truths = {prompt.row_uid: prompt.ground_truth for prompt in batch.prompts()}
    await batch.commit({id: f"#{truths[id.row_uid]}" if id.sample == 0 else "#7" for id in batch.ids})
    with functions.running("reward", command=[str(EXAMPLE / "app.py")]) as function:
        reply = await function.call(await batch.reward_call(), stage="reward")
        outputs = StageReply[RewardOutputs].model_validate_json(reply.content).outputs
        scores = Scores.model_validate_json(await blobs.get(outputs.scores))
        assert [score.reward for score in scores.scores] == [0.75, 0.0] * 4
        settings = ConformanceSettings.read(
            url=function.url,
            stage="reward",
            token=function.token,
            redis_url=redis_server.url,
            blob_url=functions.blobs.as_uri(),
            model=str(MODEL),
            environment={"REDIS_PASSWORD": redis_server.password},
        )
        findings = await try_function(settings)
    assert [finding for finding in findings if finding.verdict != "passed"] == []


def test_its_image_is_started_as_the_services_start_any() -> None:
    [service] = documents(FUNCTIONS / "reward.yaml")
    module = container(service)["command"][-1]
    lines = (EXAMPLE / "Containerfile").read_text().splitlines()
    assert f"COPY app.py /app/{module.replace('.', '/')}.py" in lines
    assert f"ARG BASE={container(service)['image']}" in lines


def test_the_page_says_what_the_information_is() -> None:
    """The example in the documentation is an answer that the controller takes."""
    text = Path(REPOSITORY, "deploy/functions.md").read_text()
    [shown] = [line for line in text.splitlines() if "`GET /v1/info`" in line]
    example_json = shown.split("`")[3].replace("HOSTNAME", '"a"').replace("K_REVISION", '"b"')
    assert json.loads(example_json) == {"stages": ["reward"], "contract_version": 1, "instance": "a", "revision": "b"}
