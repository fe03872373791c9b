"""Remote rewards against a small real server."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from functions.reward import remote_reward
from functions.reward.allowed_hosts import AllowedHosts
from functions.reward.outcome import CompletionText, NotApplicable, Outcome, Rewarded
from functions.reward.remote_reward import RemoteRewards
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput, RewardFailed, RewardTimeout
from shared.contracts.policy import BlobRef, ModelRef
from shared.contracts.prompt import Prompt
from shared.contracts.reward import RemoteReward, RewardInputs


class Judge:
    """A server that scores by length, and fails as it is told to."""

    def __init__(self) -> None:
        self.url = ""
        self.failures: list[int] = []
        """Statuses of the next answers."""
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.app = FastAPI()
        self.app.post("/score")(self.score)
        self.app.post("/v2/models/rm/infer")(self.infer)
        self.app.post("/moved")(lambda: RedirectResponse("/score"))
        self.app.post("/long")(lambda: Response(b"1" * 2000))
        self.app.post("/text")(lambda: Response(b"not JSON"))
        self.app.post("/deep")(lambda: Response(b"[" * 100_000))
        self.app.post("/slow")(self.slow)

    async def score(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append((dict(request.headers), body))
        if self.failures:
            return Response(status_code=self.failures.pop(0), headers={"retry-after": "0"})
        texts = [sample["completion"] for sample in body["samples"]]
        if "bad" in texts:
            return Response(status_code=500)
        return JSONResponse({"scores": [None if text == "skip" else len(text) for text in texts]})

    async def infer(self, request: Request) -> Response:
        body = await request.json()
        by_name = {tensor["name"]: tensor["data"] for tensor in body["inputs"]}
        data = [float(len(text)) for text in by_name["completion"]]
        output = {"name": "score", "shape": [len(data)], "datatype": "FP32", "data": data}
        return JSONResponse({"model_name": "rm", "outputs": [output]})

    async def slow(self) -> None:
        await asyncio.sleep(600)


@pytest.fixture
async def judge() -> AsyncIterator[Judge]:
    judge = Judge()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        judge.url = f"http://judge.svc:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(judge.app, log_config=None, lifespan="off", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield judge
        server.should_exit = server.force_exit = True
        await serving


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "judge").write_text("hunter2-hunter2\n")
    (tmp_path / "blank").write_text("\n")
    return tmp_path


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def score(
    judge: Judge, secrets: Path, texts: dict[str, list[str]], *, allowed: str = "127.0.0.1", **options: Any
) -> tuple[dict[str, Outcome], dict[str, RewardFailed]]:
    path, resolve = options.pop("path", "/score"), options.pop("resolve", here)
    limits = {name: options.pop(name) for name in ("timeout_s", "num_attempts") if name in options}
    reward = RemoteReward(url=judge.url + path, **options)
    inputs = RewardInputs(
        prompts=BlobRef(id="run/prompts", num_bytes=1, sha256="0" * 64),
        row_uids=tuple(texts),
        num_samples=2,
        model=ModelRef(path="model"),
        reward=reward,
        **limits,
    )
    asked = [
        (Prompt(row_uid=row, token_ids=(1,), text=f"{row}?"), CompletionText(SampleId(row, sample), text, (1,)))
        for row, row_texts in texts.items()
        for sample, text in enumerate(row_texts)
    ]
    rewards = RemoteRewards(
        allowed=AllowedHosts.parse([allowed]), secrets_folder=secrets, resolve=resolve, first_pause_s=0.001
    )
    outcomes, failures = await rewards.score(asked, inputs, reward)
    return {str(id_): outcome for id_, outcome in outcomes.items()}, failures


TEXTS = {"a": ["", "skip"], "b": ["xx", "xxx"]}
SCORED = {
    "a:0": Rewarded(reward=0.0),
    "a:1": NotApplicable(),
    "b:0": Rewarded(reward=2.0),
    "b:1": Rewarded(reward=3.0),
}


@pytest.mark.parametrize("batch_size", [1, 3, 32])
async def test_every_completion_gets_its_own_score(judge: Judge, secrets: Path, batch_size: int) -> None:
    assert await score(judge, secrets, TEXTS, batch_size=batch_size) == (SCORED, {})
    assert len(judge.requests) == -(-4 // batch_size)
    assert judge.requests[0][0]["host"] == judge.url.removeprefix("http://")


async def test_a_server_of_the_open_inference_protocol(judge: Judge, secrets: Path) -> None:
    outcomes, failures = await score(judge, secrets, {"a": ["x", "xx"]}, path="", protocol="v2", model="rm")
    assert outcomes == {"a:0": Rewarded(reward=1.0), "a:1": Rewarded(reward=2.0)}
    assert not failures


async def test_what_passes_is_tried_again(judge: Judge, secrets: Path) -> None:
    judge.failures = [503, 429]
    assert await score(judge, secrets, TEXTS, num_attempts=3) == (SCORED, {})
    assert len(judge.requests) == 3


async def test_a_batch_that_fails_fails_its_rows_alone(judge: Judge, secrets: Path) -> None:
    texts = {"a": ["x", "xx"], "b": ["x", "bad"], "c": ["xxx", "x"]}
    outcomes, failures = await score(judge, secrets, texts, batch_size=2, num_attempts=2)
    assert list(failures) == ["b"]
    assert "row b, in each of 2 attempts: HTTP 500" in failures["b"].message
    assert outcomes == {
        "a:0": Rewarded(reward=1.0),
        "a:1": Rewarded(reward=2.0),
        "c:0": Rewarded(reward=3.0),
        "c:1": Rewarded(reward=1.0),
    }


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/moved", "HTTP 307: redirects are not followed"),
        ("/nowhere", "HTTP 404"),
        ("/long", "more than 1000 bytes"),
        ("/text", "not JSON"),
        ("/deep", "not JSON"),
    ],
)
async def test_other_answers_are_failures(
    judge: Judge, secrets: Path, monkeypatch: pytest.MonkeyPatch, path: str, cause: str
) -> None:
    monkeypatch.setattr(remote_reward, "_MAX_ANSWER_BYTES", 1000 if path == "/long" else 2**20)
    outcomes, failures = await score(judge, secrets, {"a": ["x", "y"]}, path=path, num_attempts=2)
    assert outcomes == {}
    assert cause in failures["a"].message
    assert not isinstance(failures["a"], RewardTimeout)
    assert judge.requests == [], "what redirects is not followed"


async def test_a_hang_is_a_timeout(judge: Judge, secrets: Path) -> None:
    _, failures = await score(judge, secrets, {"a": ["x", "y"]}, path="/slow", timeout_s=0.2, num_attempts=2)
    assert isinstance(failures["a"], RewardTimeout)
    assert "no answer within 0.2 s" in failures["a"].message


async def test_a_server_that_is_not_there_is_a_failure(judge: Judge, secrets: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        judge.url = f"http://judge.svc:{nobody.getsockname()[1]}"
        _, failures = await score(judge, secrets, {"a": ["x", "y"]}, num_attempts=2)
    assert "ConnectError" in failures["a"].message


async def test_a_host_that_is_not_allowed_is_never_asked(judge: Judge, secrets: Path) -> None:
    for allowed in ("other.svc", "judge.svc"):
        with pytest.raises(InvalidInput, match="RLHFLESS_REWARD_ALLOWED_HOSTS"):
            await score(judge, secrets, TEXTS, allowed=allowed)
    assert judge.requests == []


@pytest.mark.parametrize("url", ["http://judge.svc:http", "http://judge..svc", f"http://{'j' * 64}.svc"])
async def test_a_url_that_is_none_is_refused_and_no_fault_of_a_server(judge: Judge, secrets: Path, url: str) -> None:
    judge.url = url
    with pytest.raises(InvalidInput, match=r"url .* is none"):
        await score(judge, secrets, TEXTS, resolve=remote_reward.resolve_by_dns)


async def test_the_secret_comes_from_its_file(judge: Judge, secrets: Path) -> None:
    await score(judge, secrets, TEXTS, secret="judge")
    assert judge.requests[0][0]["authorization"] == "Bearer hunter2-hunter2"
    for name in ("nowhere", "blank"):
        with pytest.raises(InvalidInput, match=f"no secret '{name}'"):
            await score(judge, secrets, TEXTS, secret=name)


async def test_no_failure_tells_the_secret(judge: Judge, secrets: Path) -> None:
    judge.failures = [401]
    _, failures = await score(judge, secrets, TEXTS, secret="judge")
    assert "hunter2" not in failures["a"].message
