"""The reward function as KServe's own client meets it. Needs the `kserve` package, which wants an old psutil."""

from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.contract.function_process import FunctionProcess

pytestmark = pytest.mark.kserve

MODEL = "exact_number"


@pytest.fixture
def kserve() -> Any:
    return import_module("kserve")


@pytest_asyncio.fixture
async def client(kserve: Any) -> AsyncIterator[Any]:
    client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2"))
    yield client
    await client.close()


def request(kserve: Any, completions: list[str], truths: list[str]) -> Any:
    inputs = [
        kserve.InferInput(name, [len(texts)], "BYTES", data=texts)
        for name, texts in (("completion", completions), ("ground_truth", truths))
    ]
    return kserve.InferRequest(MODEL, inputs)


async def test_health_and_readiness(reward: FunctionProcess, client: Any) -> None:
    headers = {"authorization": f"Bearer {reward.token}"}
    assert await client.is_server_live(reward.url) is True
    assert await client.is_server_ready(reward.url) is True
    assert await client.is_model_ready(reward.url, MODEL, headers=headers) is True


async def test_scores(reward: FunctionProcess, kserve: Any, client: Any) -> None:
    headers = {"authorization": f"Bearer {reward.token}"}
    asked = request(kserve, ["#3", "it is 5"], ["3", "4"])
    answer = await client.infer(reward.url, asked, model_name=MODEL, headers=headers)
    assert answer.model_name == MODEL
    assert answer.id
    [score] = answer.outputs
    assert (score.name, score.shape, score.as_numpy().tolist()) == ("score", [2], [1.0, 0.0])


async def test_a_refusal_reaches_the_caller_with_its_reason(reward: FunctionProcess, kserve: Any, client: Any) -> None:
    asked = request(kserve, ["#3"], ["3"])
    with pytest.raises(httpx.HTTPStatusError, match="send the shared token"):
        await client.infer(reward.url, asked, model_name=MODEL)
    headers = {"authorization": f"Bearer {reward.token}"}
    with pytest.raises(httpx.HTTPStatusError, match="there is no model 'none' here"):
        await client.infer(reward.url, asked, model_name="none", headers=headers)
