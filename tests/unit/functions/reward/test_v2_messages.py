"""What a V2 request has to look like, and how it becomes rows."""

import json
from typing import Any

import pytest

from functions.reward.outcome import CompletionText, Rewarded
from functions.reward.remote_protocols import read_answer, request_body
from functions.reward.v2_messages import INPUTS, infer_response, model_metadata, read_request, read_rows
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.prompt import Prompt
from shared.contracts.reward import RemoteReward, TensorNames


def tensor(name: str, *texts: object, **fields: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(texts)], "datatype": "BYTES", "data": list(texts), **fields}


def body(*inputs: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"inputs": inputs, **fields}).encode()


def test_rows_are_read_by_the_names_of_their_tensors() -> None:
    request = read_request(
        body(
            tensor("completion", "#3", "#4"),
            tensor("prompt", "1+2=", "2+2=", shape=[2, 1]),
            tensor("ground_truth", ["3"], ["4"], shape=[2, 1]),
            tensor("data_source", "sums", "sums"),
            id="seven",
            outputs=[{"name": "score"}],
            parameters={"unknown": 1},
        )
    )
    prompts, completions = read_rows(request)
    assert request.id == "seven"
    assert [(p.row_uid, p.text, p.ground_truth, p.data_source) for p in prompts] == [
        ("0", "1+2=", "3", "sums"),
        ("1", "2+2=", "4", "sums"),
    ]
    assert [(c.id, c.text) for c in completions] == [(SampleId("0", 0), "#3"), (SampleId("1", 0), "#4")]


def test_one_text_is_prompt_and_completion() -> None:
    [prompt], [completion] = read_rows(read_request(body(tensor("text", "1+2=3"))))
    assert (prompt.text, prompt.ground_truth, completion.text) == ("", None, "1+2=3")


@pytest.mark.parametrize(
    ("request_body", "why"),
    [
        (b"{", "JSON"),
        (b"[]", "body"),
        (body(), "inputs"),
        (body(tensor("completion", "a"), id=7), "id"),
        (body(tensor("prompt", "a")), "either 'completion' or 'text'"),
        (body(tensor("completion", "a"), tensor("text", "a")), "either 'completion' or 'text'"),
        (body(tensor("completion", "a"), tensor("completion", "a")), "twice"),
        (body(tensor("answer", "a")), "no tensor 'answer'"),
        (body(tensor("completion", "a"), outputs=[{"name": "logits"}]), "no tensor 'logits'"),
        (body(tensor("completion", "a", datatype="FP32")), "FP32"),
        (body(tensor("completion", "a", data=None)), "binary"),
        (body(tensor("completion", "a", shape=[2])), "shape says 2"),
        (body(tensor("completion", "a", shape=[1, 2])), r"shape \[1, 2\]"),
        (body(tensor("completion", "a", shape=[])), r"shape \[\]"),
        (body(tensor("completion")), "strings"),
        (body(tensor("completion", 1)), "strings"),
        (body(tensor("completion", ["a", "b"])), "strings"),
        (body(tensor("completion", "a"), tensor("prompt", "a", "b")), "'prompt' has 2 entries for 1"),
    ],
)
def test_what_is_no_request(request_body: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        read_rows(read_request(request_body))


def test_our_own_client_understands_both_ways() -> None:
    """What ``remote_protocols`` asks is read here, and what is answered here is read there."""
    names = TensorNames(ground_truth="ground_truth")
    remote = RemoteReward(url="http://judge", protocol="v2", model="exact_number", tensors=names)
    prompt = Prompt(row_uid="r", token_ids=(1,), text="1+2=", ground_truth="3")
    asked = [(prompt, CompletionText(SampleId("r", 0), "#3", ()))]
    request = read_request(json.dumps(request_body(remote, asked)).encode())
    [read_prompt], [completion] = read_rows(request)
    assert (read_prompt.text, completion.text, read_prompt.ground_truth) == ("1+2=", "#3", "3")
    assert read_answer(remote, infer_response("exact_number", "an-id", [0.1]), 1) == [Rewarded(reward=0.1)]


def test_metadata_names_what_is_taken_and_given() -> None:
    about = model_metadata("math")
    assert [tensor["name"] for tensor in about["inputs"]] == list(INPUTS)
    assert about["outputs"] == [{"name": "score", "datatype": "FP64", "shape": [-1]}]
