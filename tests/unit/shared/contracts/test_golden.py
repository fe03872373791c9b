"""The wire, literally: a controller and a function of two builds must read each other's messages."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from shared.contracts.call import StageCall
from shared.contracts.stage import Stage
from shared.contracts.wire import Wire
from tests.unit.shared.contracts.examples import EXAMPLES, GOLDEN

NAMES = sorted(EXAMPLES)


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.json").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_message_is_written_as_ever(name: str) -> None:
    assert json.loads(EXAMPLES[name].model_dump_json()) == json.loads(golden(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_message_is_read_as_it_was_meant(name: str) -> None:
    read = type(EXAMPLES[name]).model_validate_json(golden(name))
    assert read == EXAMPLES[name]
    if isinstance(read, StageCall):
        meant = EXAMPLES[name]
        assert isinstance(meant, StageCall)
        assert read.digest() == meant.digest()


def test_every_golden_file_has_its_message_and_every_stage_a_call_and_a_reply() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == NAMES
    for stage in Stage:
        own = [name for name in NAMES if name.startswith(stage.value)]
        assert any(name.endswith("_call") for name in own)
        assert any(name.endswith("_reply") for name in own)


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Every JSON object within the value."""
    if isinstance(value, dict):
        return [value, *(inner for part in value.values() for inner in objects_in(part))]
    if isinstance(value, list):
        return [inner for part in value for inner in objects_in(part)]
    return []


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_field_is_refused_wherever_it_stands(name: str) -> None:
    message = json.loads(golden(name))
    spots = [spot for spot in objects_in(message) if spot is not message.get("metrics")]
    assert len(spots) >= 3
    for spot in spots:
        spot["mispelt"] = 1
        with pytest.raises(ValidationError, match="mispelt"):
            type(EXAMPLES[name]).model_validate_json(json.dumps(message))
        del spot["mispelt"]
    type(EXAMPLES[name]).model_validate_json(json.dumps(message))


@pytest.mark.parametrize("name", NAMES)
def test_messages_cannot_be_changed(name: str) -> None:
    example: Wire = EXAMPLES[name]
    with pytest.raises(ValidationError, match="frozen"):
        example.key = None
