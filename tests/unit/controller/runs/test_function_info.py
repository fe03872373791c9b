"""What functions announce, and whether a run can work with it."""

import json
from typing import Any

import pytest

from controller.platforms.base import FunctionState, PlatformReply
from controller.runs.function_info import Announced, FunctionUnfit, read_announcement, tokenizer_disagreement
from shared.contracts.errors import Unauthenticated
from shared.contracts.info import CONTRACT_VERSION, FunctionInfo
from shared.contracts.stage import Stage


def state(name: str = "rollout", *stages: Stage) -> FunctionState:
    return FunctionState(
        name=name,
        stages=stages or (Stage.ROLLOUT,),
        url="",
        revision=f"{name}-00001",
        image="",
        ready=True,
        reason="",
        num_replicas=0,
        num_ready=0,
        num_pending=0,
        num_in_flight=0,
        num_queued=0,
        min_scale=0,
        max_scale=0,
    )


def answer(**fields: Any) -> PlatformReply:
    said = {"stages": ["rollout"], "contract_version": CONTRACT_VERSION, **fields}
    return PlatformReply(status=200, headers={}, body=json.dumps(said).encode())


def refused(message: str) -> PlatformReply:
    return PlatformReply(status=401, headers={}, body=Unauthenticated(message).problem().model_dump_json().encode())


def announced(name: str, tokenizer_hash: str | None) -> Announced:
    return read_announcement(state(name), answer(tokenizer_hash=tokenizer_hash))


def test_our_own_functions_announce_enough() -> None:
    info = FunctionInfo(stages=(Stage.ROLLOUT,), instance="pod", revision="rollout-00001")
    found = read_announcement(state(), PlatformReply(status=200, headers={}, body=info.model_dump_json().encode()))
    assert (found.says.instance, found.says.revision, found.says.model) == ("pod", "rollout-00001", None)


def test_a_function_of_somebody_else_may_say_more() -> None:
    found = read_announcement(state(), answer(model="org/judge", author="them", stages=["rollout", "dreaming"]))
    assert found.says.model == "org/judge"


@pytest.mark.parametrize(
    ("function", "said", "why"),
    [
        (state(), refused("send the token"), "with 401: send the token"),
        (state(), PlatformReply(status=404, headers={}, body=b"nothing here"), "with 404: HTTP 404 nothing here"),
        (state(), PlatformReply(status=200, headers={}, body=b"<html>"), "lacks JSON"),
        (state(), PlatformReply(status=200, headers={}, body=b"{}"), "lacks contract_version, stages"),
        (state(), answer(stages=["reward"]), "serves reward, not rollout"),
        (state(), answer(stages=[]), "serves nothing, not rollout"),
        (state("both", Stage.LEARNER, Stage.ROLLOUT), answer(), "not learner"),
        (
            state(),
            answer(contract_version=CONTRACT_VERSION + 1),
            f"version {CONTRACT_VERSION + 1} of the stage contract",
        ),
    ],
)
def test_what_no_run_can_work_with(function: FunctionState, said: PlatformReply, why: str) -> None:
    with pytest.raises(FunctionUnfit, match=why):
        read_announcement(function, said)


def test_tokenizers_agree_where_they_are_the_same_or_nobody_says() -> None:
    assert tokenizer_disagreement([announced("rollout", "a"), announced("learner", "a")]) is None
    assert tokenizer_disagreement([announced("rollout", "a"), announced("reward", None)]) is None
    assert tokenizer_disagreement([announced("rollout", None)], own="a") is None
    assert tokenizer_disagreement([announced("rollout", "a")], own="a") is None


def test_tokenizers_that_differ_are_named() -> None:
    said = tokenizer_disagreement([announced("rollout", "a" * 64), announced("learner", "b" * 64)])
    assert said is not None
    assert said.endswith("learner bbbbbbbbbbbb, rollout aaaaaaaaaaaa")
    said = tokenizer_disagreement([announced("rollout", "a" * 64)], own="c" * 64)
    assert said is not None
    assert "the run's model cccccccccccc" in said
