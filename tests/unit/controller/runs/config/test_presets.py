"""Presets: a paper's keys under the user's own."""

from typing import Any, get_args

import pytest

from controller.runs.config.keys import known_keys
from controller.runs.config.load import load_config, resolved
from controller.runs.config.presets import PRESETS
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.config.to_wire import algorithm_config
from shared.contracts.learner import AdvantageEstimator, LossAggregation, LossMode

MINIMAL: dict[str, Any] = {
    "model.path": "m",
    "data.train_files": "t.jsonl",
    "reward.rule": "exact_match",
    "trainer.total_training_steps": 10,
}


def only_problem(document: dict[str, Any], *overrides: str) -> ConfigProblem:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(MINIMAL | document, overrides)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_sets_its_keys_and_no_others(name: str) -> None:
    plain = resolved(load_config(MINIMAL))
    tree = resolved(load_config(MINIMAL | {"preset": name}))
    written = {"actor.clip_ratio_low", "actor.clip_ratio_high", "algorithm.overlong_buffer.len"}
    for key in known_keys():
        before, after = plain, tree
        for part in key.split("."):
            before, after = before[part], after[part]
        if key in PRESETS[name]:
            assert after == PRESETS[name][key]
        elif key not in written:
            assert after == before, key


def test_presets_are_made_of_keys() -> None:
    assert {key for keys in PRESETS.values() for key in keys} <= set(known_keys())


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_preset_resolves_to_asks_for_the_same_run_without_it(name: str) -> None:
    config = load_config(MINIMAL | {"preset": name})
    tree = resolved(config)
    assert "preset" not in tree
    assert algorithm_config(load_config(tree)) == algorithm_config(config)


def test_a_users_key_wins_under_any_name() -> None:
    assert load_config(MINIMAL | {"preset": "dapo"}).actor.clip_range == (0.2, 0.28)
    assert load_config(MINIMAL | {"preset": "dapo", "epsilon_high": 0.5}).actor.clip_range == (0.2, 0.5)
    assert (
        load_config(
            MINIMAL
            | {"preset": "dapo", "algorithm": {"filter_groups": False, "overlong_buffer": {"enable": False}}}
            | {"algorithm.filter_groups.max_num_gen_batches": 0}
        ).algorithm.filter_groups.enable
        is False
    )
    assert load_config(MINIMAL | {"preset": "ppo"}, ["algorithm.lam=0.5"]).algorithm.lam == 0.5


@pytest.mark.parametrize("name", ["dapo", "gspo", "cispo"])
def test_a_users_clip_range_of_both_sides_wins_over_a_presets_of_either(name: str) -> None:
    preset = MINIMAL | {"preset": name}
    assert load_config(preset | {"actor.clip_ratio": 0.05}).actor.clip_range == (0.05, 0.05)
    assert load_config(preset, ["epsilon=0.05"]).actor.clip_range == (0.05, 0.05)
    assert load_config(preset | {"actor.clip_ratio": 0.2}).actor.clip_range == (0.2, 0.2), "the default, if asked for"
    one_side = preset | {"actor.clip_ratio": 0.05, "actor.clip_ratio_high": 0.1}
    assert load_config(one_side).actor.clip_range == (0.05, 0.1)
    both = {"actor.clip_ratio_low": 0.1, "actor.clip_ratio_high": 0.3, "actor.clip_ratio": 0.05}
    assert only_problem({"preset": name} | both).field == "actor.clip_ratio"


def test_an_override_names_the_preset_or_another_one() -> None:
    assert load_config(MINIMAL, ["preset=rloo"]) == load_config(MINIMAL | {"preset": "rloo"})
    assert load_config(MINIMAL | {"preset": "ppo"}, ["preset=gspo"]) == load_config(MINIMAL | {"preset": "gspo"})


def test_no_preset_is_none() -> None:
    assert load_config(MINIMAL | {"preset": None}) == load_config(MINIMAL)


@pytest.mark.parametrize("name", ["best", "", 3, ["ppo"], {"ppo": True}])
def test_a_preset_that_is_none_is_refused_with_those_there_are(name: object) -> None:
    problem = only_problem({"preset": name})
    assert problem.field.startswith("preset")


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    problem = only_problem({}, "preset=best")
    assert (problem.field, problem.reason) == ("preset", "'best' is not a preset")
    assert "dapo, rloo" in problem.suggestion


def test_a_preset_that_breaks_a_rule_says_where_the_key_comes_from() -> None:
    alone = {"algorithm.adv_estimator": "reinforce_plus_plus", "rollout.n": 1}
    problem = only_problem({"preset": "dapo", **alone})
    assert problem.field == "algorithm.filter_groups.enable"
    assert problem.suggestion.endswith("it comes from preset dapo")


def test_what_has_no_effect_beside_the_users_keys_is_taken_from_the_preset() -> None:
    config = load_config(MINIMAL | {"preset": "ppo", "algorithm.adv_estimator": "rloo"})
    assert config.algorithm.lam == load_config(MINIMAL).algorithm.lam


def test_every_choice_has_its_preset() -> None:
    wires = [algorithm_config(load_config(MINIMAL | {"preset": name})) for name in PRESETS]
    assert {wire.adv_estimator for wire in wires} == {*get_args(AdvantageEstimator)} - {"reinforce_plus_plus_baseline"}
    assert {wire.loss_mode for wire in wires} == {*get_args(LossMode)}
    assert {wire.loss_agg_mode for wire in wires} == {*get_args(LossAggregation)}
