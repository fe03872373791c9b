"""What a run says about its reward, and what the reward function is told."""

from typing import Any

import pytest

from controller.runs.config.load import load_config, resolved
from controller.runs.config.problems import ConfigInvalid
from controller.runs.config.run_config import RunConfig
from controller.runs.config.to_wire import reward_spec
from shared.contracts.policy import ModelRef
from shared.contracts.reward import (
    CodeParameters,
    FunctionReward,
    MathParameters,
    ModelReward,
    RegexParameters,
    RemoteReward,
    RewardPart,
    RuleReward,
    SumReward,
    TensorNames,
)

MINIMAL: dict[str, Any] = {"model.path": "m", "data.train_files": "t.jsonl", "trainer.total_training_steps": 9}


def config_of(**reward: Any) -> RunConfig:
    return load_config(MINIMAL | {f"reward.{name}": value for name, value in reward.items()})


def problem_of(**reward: Any) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        config_of(**reward)
    (problem,) = caught.value.problems
    assert problem.suggestion
    return f"{problem.field}: {problem.reason}"


@pytest.mark.parametrize(
    ("part", "reward"),
    [
        ({"rule": "math"}, RuleReward(name="math")),
        (
            {"rule": "math", "parameters": {"boxed_only": True}},
            RuleReward(name="math", parameters=MathParameters(boxed_only=True)),
        ),
        (
            {"rule": "regex", "parameters": {"pattern": "a.*"}},
            RuleReward(name="regex", parameters=RegexParameters(pattern="a.*")),
        ),
        (
            {"rule": "code", "parameters": {"partial": True, "test_timeout_s": 2}},
            RuleReward(name="code", parameters=CodeParameters(partial=True, test_timeout_s=2.0)),
        ),
        ({"function": "rewards/f.py:score"}, FunctionReward(path="rewards/f.py", name="score")),
        ({"function": "a.b:score"}, FunctionReward(path="a.b", name="score", source="module")),
        (
            {"model": {"path": "/models/rm", "max_tokens": 99}},
            ModelReward(model=ModelRef(path="/models/rm"), max_tokens=99),
        ),
        (
            {"remote": {"url": "http://rm.svc", "protocol": "v2", "model": "rm", "tensors": {"score": "s"}}},
            RemoteReward(url="http://rm.svc", protocol="v2", model="rm", tensors=TensorNames(score="s")),
        ),
        ({"remote": {"url": "https://j/x", "secret": "judge"}}, RemoteReward(url="https://j/x", secret="judge")),
    ],
)
def test_a_part_is_told_as_it_was_meant(part: dict[str, Any], reward: Any) -> None:
    config = config_of(parts=[{"name": "p", "weight": 0.5} | part])
    assert reward_spec(config) == SumReward(parts=(RewardPart(name="p", weight=0.5, reward=reward),))
    assert load_config(resolved(config)).reward == config.reward


def test_the_short_forms() -> None:
    assert reward_spec(config_of(rule="math")) == RuleReward(name="math")
    module = {"custom_reward_function": {"module": "my.rewards:score"}}
    assert reward_spec(config_of(**module)) == FunctionReward(path="my.rewards", name="score", source="module")


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"name": "a"}, "reward part 'a' has none of rule, function, model, remote"),
        ({"name": "a", "rule": "math", "model": {"path": "m"}}, "'a' has rule and model"),
        ({"name": "a", "rule": "regex"}, "regex needs a pattern"),
        ({"name": "a", "rule": "regex", "parameters": {"pattern": "("}}, "pattern is no regular expression"),
        ({"name": "a", "rule": "math", "parameters": {"patern": "x"}}, "parameters.math.patern"),
        ({"name": "a", "function": "f.py:g", "parameters": {"x": 1}}, "parameters, which are a rule's"),
        ({"name": "a", "function": "f.py"}, "function"),
        ({"name": "a", "model": {}}, "'a': path"),
        ({"name": "a", "remote": {"url": "ftp://x"}}, "'a': url"),
        ({"name": "a", "remote": {"url": "http://u:secret@x"}}, "'a': url"),
        ({"name": "a", "remote": {"url": "http://x", "protocol": "v2"}}, "a model is named for protocol v2"),
        ({"name": "a", "remote": {"url": "http://x", "token": "t"}}, "'a': token"),
        ({"name": "a", "rule": "math", "weigth": 2}, "a reward part has no weigth; it has name, weight"),
        ({"name": "a/b", "rule": "math"}, "pattern"),
        ({"name": "a", "rule": "math", "weight": float("nan")}, "finite"),
        ({"name": "a", "rule": "math", "weight": 1e308}, "less than or equal to 1000000"),
        ({"name": "a", "rule": "math", "weight": -1.1e6}, "greater than or equal to -1000000"),
        ({"name": "a", "rule": "math", "shaping": True}, "all parts are shaping"),
    ],
)
def test_a_part_that_is_wrong_is_refused_by_its_key(part: dict[str, Any], words: str) -> None:
    assert words in problem_of(parts=[part])


def test_the_parts_as_a_whole() -> None:
    part = {"name": "a", "rule": "math"}
    assert "the same name" in problem_of(parts=[part, part])
    assert "at least 1 item" in problem_of(parts=[])
    assert "several rewards" in problem_of(parts=[part], rule="math")
    assert "several rewards" in problem_of(**{"custom_reward_function.module": "a:b", "rule": "math"})
    assert "regex needs a pattern" in problem_of(rule="regex")


@pytest.mark.parametrize(
    ("reward", "needed"),
    [
        ({"rule": "math"}, True),
        ({"custom_reward_function.path": "f.py"}, False),
        ({"parts": [{"name": "a", "rule": "regex", "parameters": {"pattern": "a"}}]}, False),
        ({"parts": [{"name": "a", "function": "f.py:g"}, {"name": "b", "rule": "code"}]}, True),
    ],
)
def test_rules_that_compare_need_a_ground_truth(reward: dict[str, Any], needed: bool) -> None:
    assert config_of(**reward).reward.needs_ground_truth is needed


@pytest.mark.parametrize("key", ["reward_funcs", "reward_weights", "reward_model.model.path"])
def test_other_trainers_keys_are_refused_with_what_to_write(key: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"use reward\.parts"):
        load_config(MINIMAL | {"reward.rule": "math", key: ["x"]})
