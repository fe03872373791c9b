"""LoRA and how passes are computed: from keys to contracts."""

from typing import Any

import pytest

from controller.runs.config.critic_to_wire import value_update_config
from controller.runs.config.load import load_config
from controller.runs.config.model_to_wire import lora_config, training_pass
from controller.runs.config.problems import ConfigInvalid
from controller.runs.config.run_config import RunConfig
from controller.runs.config.to_wire import algorithm_config
from shared.contracts.lora import LoraConfig
from shared.contracts.training_pass import TrainingPass


def config_of(keys: dict[str, Any]) -> RunConfig:
    minimal = {"model.path": "m", "data.train_files": "t", "trainer.total_training_steps": 9}
    return load_config(minimal | {"reward.rule": "exact_number"} | keys)


def test_without_a_rank_all_weights_are_trained() -> None:
    assert lora_config(config_of({})) is None


def test_lora() -> None:
    keys = {"model.lora_rank": 8, "model.lora_alpha": 32, "model.target_modules": ["q_proj"], "trainer.seed": 5}
    assert lora_config(config_of(keys)) == LoraConfig(rank=8, alpha=32, target_modules=("q_proj",), seed=5)
    assert lora_config(config_of({"lora_r": 4})) == LoraConfig(rank=4, alpha=16, seed=42)


def test_every_stage_is_told_how_to_compute() -> None:
    keys = {"model.enable_gradient_checkpointing": True, "model.dtype": "bfloat16", "algorithm.adv_estimator": "gae"}
    config, told = config_of(keys), TrainingPass(enable_gradient_checkpointing=True, dtype="bfloat16")
    assert training_pass(config) == told
    assert algorithm_config(config).compute == told
    assert value_update_config(config).compute == told
    assert training_pass(config_of({})) == TrainingPass()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"model.lora_alpha": 32}, "there is no adapter"),
        ({"model.target_modules": ["q_proj"]}, "there is no adapter"),
        ({"model.lora_rank": -1}, "greater than or equal to 0"),
        ({"model.dtype": "float16"}, "bfloat16"),
        ({"use_peft": True}, r"model\.lora_rank"),
        ({"lora_r": 8, "lora_dropout": 0.05}, "nothing is dropped"),
        ({"fp16": True}, "loss scale"),
        ({"model.exclude_modules": ["lm_head"]}, r"model\.target_modules"),
        ({"critic.model.enable_gradient_checkpointing": True}, r"model\.enable_gradient_checkpointing"),
    ],
)
def test_what_has_no_effect_or_no_equal_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        config_of(keys)


def test_what_happens_anyway_may_be_said() -> None:
    config_of({"lora_r": 8, "lora_dropout": 0.0, "fp16": False, "model.exclude_modules": None})
