"""Secrets do not leave with a config."""

from typing import Any

import pytest

from controller.runs.config.keys import known_keys
from controller.runs.config.load import load_config, resolved
from controller.runs.scrubbing import HIDDEN, scrubbed

PLAIN: dict[str, Any] = {
    "model.path": "models/tiny",
    "data.train_files": ["a.jsonl", "b.jsonl"],
    "reward.rule": "exact_match",
    "trainer.total_training_steps": 3,
}


@pytest.mark.parametrize(
    "secret",
    [
        {"api_key": "hunter2"},
        {"wandb_api_key": "hunter2"},
        {"reward": {"remote": {"token": "hunter2"}}},
        {"reward": {"remote": {"headers": {"X-Any": "hunter2"}}}},
        {"password": "hunter2"},
        {"aws": {"secret": ["hunter2"]}},
        {"url": "https://user:hunter2@judge.example/score"},
        {"url": "redis://:hunter2@cache:6379/0"},
        {"url": "https://judge.example/score?api_key=hunter2&n=1"},
        {"urls": ["https://judge.example/?x=1&token=hunter2"]},
        {"note": "Authorization: Bearer hunter2"},
    ],
)
def test_a_secret_is_hidden_wherever_it_stands(secret: dict[str, Any]) -> None:
    found = scrubbed(secret)
    assert "hunter2" not in str(found)
    assert HIDDEN in str(found)


@pytest.mark.parametrize(
    "key",
    [
        "sk-abcdefghijklmnopqrstuvwx",
        "sk-proj-a1B2_c3D4-e5F6g7H8",
        "hf_AbCdEfGhIjKlMnOpQrStUv",
        "ghp_AbCdEfGhIjKlMnOpQrStUv0123",
        "glpat-AbCdEfGhIjKl_MnOpQr",
        "xoxb-123456789012-abcdefghijkl",
        "AKIAABCDEFGHIJKLMNOP",
        "AIzaSyAbCdEfGhIjKlMnOpQrStUv",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)
def test_a_key_of_a_well_known_form_is_hidden_in_any_text(key: str) -> None:
    assert scrubbed({"data": {"prompt_key": f"x {key} y"}}) == {"data": {"prompt_key": f"x {HIDDEN} y"}}


@pytest.mark.parametrize(
    "name",
    [
        "hf-internal-testing/tiny-random-LlamaForCausalLM",
        "skywork-reward-llama-3.1-8b",
        "pkshatechnology/a-model-with-a-long-name",
        "skills_and_values_of_ours.jsonl",
    ],
)
def test_a_long_name_is_no_secret(name: str) -> None:
    assert scrubbed({"model": {"path": name}}) == {"model": {"path": name}}


def test_an_address_keeps_what_is_no_secret() -> None:
    url = "https://me:pw@judge.example:8080/score?token=t&model=a"
    assert scrubbed({"url": url})["url"] == "https://***@judge.example:8080/score?token=***&model=a"


def test_a_plain_config_stays_as_it_is() -> None:
    config = resolved(load_config(PLAIN))
    assert scrubbed(config) == config


def test_no_key_of_a_config_is_taken_for_a_secret() -> None:
    assert {name for name in known_keys() if scrubbed("x", name.rpartition(".")[2]) == HIDDEN} == set()
