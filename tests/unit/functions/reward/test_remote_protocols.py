"""Requests and answers of remote rewards."""

import pytest

from functions.reward.outcome import CompletionText, NotApplicable, Rewarded
from functions.reward.remote_protocols import BadAnswer, address_of, read_answer, request_body
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.prompt import Prompt
from shared.contracts.reward import RemoteReward, TensorNames

OURS = RemoteReward(url="http://judge/score")
V2 = RemoteReward(url="http://judge/", protocol="v2", model="rm")
ASKED = [
    (
        Prompt(row_uid="a", token_ids=(1,), text="1+1=", ground_truth=truth, data_source="add", columns={"level": 3}),
        CompletionText(SampleId("a", sample), text, (1,)),
    )
    for sample, (text, truth) in enumerate([("2", "2"), ("3", None)])
]


def test_our_request() -> None:
    assert address_of(OURS) == "http://judge/score"
    samples = request_body(OURS, ASKED)["samples"]
    assert samples[0] == {
        "prompt": "1+1=",
        "messages": None,
        "completion": "2",
        "ground_truth": "2",
        "data_source": "add",
        "extra_info": {"level": 3},
    }
    assert (samples[1]["completion"], samples[1]["ground_truth"]) == ("3", None)


def test_the_request_of_v2() -> None:
    assert address_of(V2) == "http://judge/v2/models/rm/infer"
    assert request_body(V2, ASKED) == {
        "inputs": [
            {"name": "prompt", "shape": [2], "datatype": "BYTES", "data": ["1+1=", "1+1="]},
            {"name": "completion", "shape": [2], "datatype": "BYTES", "data": ["2", "3"]},
        ],
        "outputs": [{"name": "score"}],
    }
    named = V2.model_copy(update={"tensors": TensorNames(prompt=None, completion=None, text="t", ground_truth="g")})
    assert request_body(named, ASKED[:1])["inputs"] == [
        {"name": "t", "shape": [1], "datatype": "BYTES", "data": ["1+1=2"]},
        {"name": "g", "shape": [1], "datatype": "BYTES", "data": ["2"]},
    ]
    with pytest.raises(InvalidInput, match="Row a has no ground truth"):
        request_body(named, ASKED)


def test_null_is_not_applicable_and_no_zero() -> None:
    assert read_answer(OURS, {"scores": [0, None, 1.5]}, 3) == [
        Rewarded(reward=0.0),
        NotApplicable(),
        Rewarded(reward=1.5),
    ]


def test_the_answer_of_v2() -> None:
    other = {"name": "other", "data": [9]}
    for data in ([0.5, 1], [[0.5], [1]]):
        answer = {"outputs": [other, {"name": "score", "shape": [2], "datatype": "FP32", "data": data}]}
        assert read_answer(V2, answer, 2) == [Rewarded(reward=0.5), Rewarded(reward=1.0)]


@pytest.mark.parametrize(
    ("reward", "answer"),
    [
        (OURS, {"scores": [1.0]}),
        (OURS, {"scores": [1.0, 2.0, 3.0]}),
        (OURS, {"scores": [1.0, float("nan")]}),
        (OURS, {"scores": [1.0, float("inf")]}),
        (OURS, {"scores": [1.0, "2"]}),
        (OURS, {"scores": [1.0, True]}),
        (OURS, [1.0, 2.0]),
        (OURS, {"rewards": [1.0, 2.0]}),
        (V2, {"outputs": []}),
        (V2, {"outputs": [{"name": "other", "data": [1, 2]}]}),
        (V2, {"outputs": [{"name": "score", "data": [1, None]}]}),
        (V2, {"outputs": [{"name": "score", "data": [[1, 2], [3, 4]]}]}),
        (V2, {"outputs": [{"name": "score", "data": "12"}]}),
        (V2, {"error": "no"}),
    ],
)
def test_an_answer_that_is_not_a_number_for_each_is_bad(reward: RemoteReward, answer: object) -> None:
    with pytest.raises(BadAnswer):
        read_answer(reward, answer, 2)
