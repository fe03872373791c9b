"""Messages of the Open Inference Protocol V2 as a reward reads and writes them. Pure.

A request holds BYTES tensors of shape ``[n]`` or ``[n, 1]``, with their texts as JSON strings:

    prompt         what was asked; empty where it is left out
    completion     what is scored; or ``text``: prompt and completion as one text
    ground_truth   what a rule compares with
    data_source    verl's name of the data set, for a function that looks at it

The answer is the tensor ``score``, FP64 of shape ``[n]``. ``functions.reward.remote_protocols`` is the other side.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from functions.reward.outcome import CompletionText
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.prompt import Prompt
from shared.service.errors import invalid_body

INPUTS = ("prompt", "completion", "text", "ground_truth", "data_source")
SCORE = "score"
_NO_TOKENS = (0,)
"""Texts come without token ids, and no reward that is served here asks for them."""


class _Tensor(BaseModel):
    name: str
    shape: tuple[int, ...]
    datatype: str
    data: list[Any] | None = None


class _Output(BaseModel):
    name: str


class InferRequest(BaseModel):
    """A request. What other servers know beyond this (parameters) is read over, as the protocol has it."""

    model_config = ConfigDict(frozen=True)

    id: str | None = Field(max_length=256, default=None)
    inputs: tuple[_Tensor, ...] = Field(min_length=1)
    outputs: tuple[_Output, ...] = ()


def read_request(body: bytes) -> InferRequest:
    """The request of a body. Raises ``InvalidInput``."""
    try:
        request = InferRequest.model_validate_json(body)
    except ValidationError as error:
        raise invalid_body(error) from error
    unknown = sorted({output.name for output in request.outputs} - {SCORE})
    if unknown:
        _refuse(f"outputs: there is no tensor {unknown[0]!r}, only {SCORE!r}")
    return request


def read_rows(request: InferRequest) -> tuple[list[Prompt], list[CompletionText]]:
    """Row ``i`` of the tensors as a prompt and its only completion, with the row uid ``str(i)``.

    Raises ``InvalidInput``.
    """
    columns = _columns(request)
    if ("completion" in columns) == ("text" in columns):
        _refuse("inputs: send either 'completion' or 'text'")
    texts = columns.get("completion", columns.get("text", []))
    odd = [name for name, column in columns.items() if len(column) != len(texts)]
    if odd:
        _refuse(f"inputs: {odd[0]!r} has {len(columns[odd[0]])} entries for {len(texts)} completions")
    prompts = [
        Prompt(
            row_uid=str(index),
            token_ids=_NO_TOKENS,
            text=columns["prompt"][index] if "prompt" in columns else "",
            data_source=columns["data_source"][index] if "data_source" in columns else "",
            ground_truth=columns["ground_truth"][index] if "ground_truth" in columns else None,
        )
        for index in range(len(texts))
    ]
    return prompts, [CompletionText(SampleId(str(index), 0), text, ()) for index, text in enumerate(texts)]


def infer_response(model: str, id: str, scores: Sequence[float]) -> dict[str, Any]:
    """The answer: one score for each row, in their order."""
    tensor = {"name": SCORE, "shape": [len(scores)], "datatype": "FP64", "data": list(scores)}
    return {"model_name": model, "id": id, "outputs": [tensor]}


def model_metadata(model: str) -> dict[str, Any]:
    """What a model of this server takes and gives."""
    return {
        "name": model,
        "versions": [],
        "platform": "rlhfless",
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in INPUTS],
        "outputs": [{"name": SCORE, "datatype": "FP64", "shape": [-1]}],
    }


def _columns(request: InferRequest) -> Mapping[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for tensor in request.inputs:
        if tensor.name not in INPUTS:
            _refuse(f"inputs: there is no tensor {tensor.name!r}, only {', '.join(INPUTS)}")
        if tensor.name in columns:
            _refuse(f"inputs: {tensor.name!r} is there twice")
        columns[tensor.name] = _texts(tensor)
    return columns


def _texts(tensor: _Tensor) -> list[str]:
    if tensor.datatype != "BYTES":
        _refuse(f"inputs: {tensor.name!r} is {tensor.datatype}: texts are BYTES")
    if tensor.data is None:
        _refuse(f"inputs: {tensor.name!r} has no data: send it as JSON, the binary extension is not spoken")
    if len(tensor.shape) not in (1, 2) or tensor.shape[1:] not in ((), (1,)):
        _refuse(f"inputs: {tensor.name!r} has shape {list(tensor.shape)}: one of [n] and [n, 1]")
    # The protocol lets both shapes be written as rows or flat.
    flat = [entry[0] if isinstance(entry, list) and len(entry) == 1 else entry for entry in tensor.data]
    if len(flat) != tensor.shape[0]:
        _refuse(f"inputs: {tensor.name!r} has {len(flat)} entries, and its shape says {tensor.shape[0]}")
    if not flat or not all(isinstance(entry, str) for entry in flat):
        _refuse(f"inputs: {tensor.name!r} holds something else than one or more strings")
    return flat


def _refuse(why: str) -> NoReturn:
    raise InvalidInput(why)
