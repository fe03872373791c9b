"""Every key of a config changes what is asked of the stages, or is read by the controller itself."""

import ast
from pathlib import Path
from typing import Any

import controller
from controller.runs.config.critic_to_wire import critic_optim_config, value_update_config
from controller.runs.config.keys import known_keys
from controller.runs.config.load import load_config
from controller.runs.config.model_to_wire import lora_config, training_pass
from controller.runs.config.problems import ConfigInvalid
from controller.runs.config.run_config import RunConfig
from controller.runs.config.schedule_policy import schedule_policy
from controller.runs.config.to_wire import (
    algorithm_config,
    eval_sampling,
    multi_turn,
    optim_config,
    reward_spec,
    train_sampling,
)
from tests.unit.controller.runs.config.test_load import MINIMAL, OTHER, together

TO_THE_CONTROLLER = ("data.", "platform.", "trainer.")
"""Sections that the controller acts on by itself, and further keys that calls carry or that it acts on."""
CARRIED = {
    "algorithm.filter_groups.max_num_gen_batches",
    "critic.model.path",
    "model.path",
    "reference.model.path",
    "rollout.dtype",
    "rollout.max_num_seqs",
    "rollout.n",
    "rollout.num_actors",
    "rollout.val_kwargs.n",
    "reward.num_attempts",
    "reward.on_failure",
    "reward.timeout_s",
}
FARTHER = {"rollout.top_k": 5, "rollout.val_kwargs.top_k": 5, "critic.ppo_epochs": 3}
"""Values that say more than the default, where the next one means the same."""
BESIDE: dict[str, dict[str, Any]] = {
    "reward.custom_reward_function.name": {"reward.rule": None, "reward.custom_reward_function.path": "reward.py"}
}


def asked(config: RunConfig) -> dict[str, Any]:
    """What the stages are told of the config."""
    return {
        "optim": optim_config(config, total_steps=10),
        "algorithm": algorithm_config(config),
        "critic": (critic_optim_config(config, total_steps=10), value_update_config(config)),
        "model": (lora_config(config), training_pass(config)),
        "reference": (config.uses_reference, config.reference_max_token_len),
        "sampling": (train_sampling(config, (9,)), eval_sampling(config, (9,)), multi_turn(config)),
        "reward": reward_spec(config),
        "initial_kl_coef": config.initial_kl_coef,
        "schedule": schedule_policy(config),
    }


def attributes_read() -> set[str]:
    """Names of attributes that the controller reads outside of the config's own rules."""
    root = Path(controller.__path__[0])
    files = [path for path in root.rglob("*.py") if path.parent != root / "runs" / "config"]
    trees = [ast.parse(path.read_text()) for path in (*files, root / "runs" / "config" / "run_config.py")]
    return {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def beside(name: str) -> dict[str, Any]:
    """A config with what the key needs."""
    return MINIMAL | BESIDE.get(name, together(name))


def without(name: str) -> RunConfig:
    """The config with what the key needs, or without either where that is nothing by itself."""
    try:
        return load_config(beside(name))
    except ConfigInvalid:
        return load_config(MINIMAL)


def test_every_key_counts() -> None:
    read, idle = attributes_read(), []
    for name, key in known_keys().items():
        if name in FARTHER or name in OTHER:
            value = (FARTHER if name in FARTHER else OTHER)[name]
        elif key.accepts_bool:
            value = not key.default
        elif key.accepts_text:
            value = "other"
        else:
            value = (key.default or 0) + 1
        if asked(load_config(beside(name) | {name: value})) != asked(without(name)):
            continue
        leaf = name.rpartition(".")[2]
        if not ((name in CARRIED or name.startswith(TO_THE_CONTROLLER)) and leaf in read):
            idle.append(name)
    assert not idle, f"these keys change nothing: {idle}"
