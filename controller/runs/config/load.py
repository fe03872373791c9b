"""From a document and overrides to a ``RunConfig``, or to the list of everything that is wrong with them."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from controller.runs.config.keys import Key, known_keys, nested
from controller.runs.config.layers import Given, canonical, flatten, over
from controller.runs.config.overrides import parse_overrides
from controller.runs.config.presets import PRESETS, STANDS_FOR
from controller.runs.config.problems import ConfigInvalid, ConfigProblem, shown
from controller.runs.config.rules import RULES
from controller.runs.config.run_config import RunConfig

PRESET = "preset"
"""Names the keys that lie under a config's own. It is no key of the run: what it stands for is."""


def load_config(document: Mapping[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Check a config document (nested sections, or dotted names) with ``a.b=c`` overrides on top of it.

    Under both lie the keys of the ``preset`` that either names, and under these the defaults. verl's names are
    canonical; its ``actor_rollout_ref.`` prefix and TRL's flat names are accepted. Raises ``ConfigInvalid`` with all
    problems at once; nothing is read from disk.
    """
    override_values, problems = parse_overrides(overrides)
    layers = [list(flatten(document)), list(override_values.items())]
    preset, preset_problems = _preset([value for layer in layers for name, value in layer if name == PRESET])
    problems += preset_problems
    given = {key: Given(key, value, preset) for key, value in PRESETS.get(preset or "", {}).items()}
    for layer in layers:
        values_of_layer, layer_problems = canonical(pair for pair in layer if pair[0] != PRESET)
        given = over(given, values_of_layer)
        problems += layer_problems
    given = _without_replaced(given)

    values: dict[str, Any] = {}
    for name, key in known_keys().items():
        if name in given:
            value, faults = _checked(key, given[name])
        elif key.required:
            value, faults = None, [_missing(key)]
        else:
            value, faults = key.default, []
        if faults:
            problems += faults
        else:
            values[name] = value

    idle: set[str] = set()
    for rule in RULES:
        # Of a key that is to be left out nothing more is of interest.
        if rule.keys[0] not in idle and all(name in values for name in rule.keys):
            broken = rule.check(*(values[name] for name in rule.keys))
            if broken is not None:
                blamed = given.get(rule.keys[0], Given(rule.keys[0], None))
                if rule.is_idle and blamed.preset:
                    # The user has switched off what the preset tunes there.
                    values[rule.keys[0]] = known_keys()[rule.keys[0]].default
                    continue
                if rule.is_idle:
                    idle.add(rule.keys[0])
                hint = f"; it comes from preset {blamed.preset}" if blamed.preset else ""
                problems.append(
                    ConfigProblem(field=blamed.spelled, reason=broken.reason, suggestion=broken.suggestion + hint)
                )
    if problems:
        raise ConfigInvalid(problems)
    return RunConfig.model_validate(nested(values))


def _preset(named: Sequence[object]) -> tuple[str | None, list[ConfigProblem]]:
    """The preset that holds, the last one that is named, and what is wrong with it."""
    name = next((name for name in reversed(named) if name is not None), None)
    if name is None or (isinstance(name, str) and name in PRESETS):
        return name, []
    problem = ConfigProblem(
        field=PRESET, reason=f"{shown(name)} is not a preset", suggestion=f"use one of {', '.join(PRESETS)}"
    )
    return None, [problem]


def _without_replaced(given: Mapping[str, Given]) -> dict[str, Given]:
    """What is given, without a preset's keys that one of the user's stands for."""
    replaced = {
        key for general, keys in STANDS_FOR.items() if general in given and not given[general].preset for key in keys
    }
    return {key: value for key, value in given.items() if not (key in replaced and value.preset)}


def resolved(config: RunConfig) -> dict[str, Any]:
    """Every key with the value that holds, as JSON values in the order of the sections.

    Keys whose null stands for another key's value show that value. ``load_config`` of the result asks for the same run.
    """
    tree = config.model_dump(mode="json")
    tree["actor"]["clip_ratio_low"], tree["actor"]["clip_ratio_high"] = config.actor.clip_range
    tree["actor"]["ppo_mini_batch_size"] = config.mini_batch_size
    if config.algorithm.overlong_buffer.enable:
        tree["algorithm"]["overlong_buffer"]["len"] = config.algorithm.overlong_buffer.tokens(
            config.data.max_response_length
        )
    tree["data"]["seed"] = config.data_seed
    return tree


def _checked(key: Key, given: Given) -> tuple[Any, list[ConfigProblem]]:
    """The value as the key's type, or why it is none."""
    if isinstance(given.value, bool) and not key.accepts_bool:
        return None, [_invalid(key, given, f"{given.value} is not a value of this key")]
    try:
        return key.adapter.validate_python(given.value), []
    except ValidationError as error:
        # A union reports each of its members; the first names what the key is meant to be.
        return None, [_invalid(key, given, f"{_sentence(error)}, got {shown(given.value)}")]


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = "".join(f"[{part}]" for part in first["loc"] if isinstance(part, int))
    message = first["msg"].replace("Input should", "it should")
    return f"{'item ' + place + ': ' if place else ''}{message[:1].lower()}{message[1:]}"


def _invalid(key: Key, given: Given, reason: str) -> ConfigProblem:
    name = key.name if key.name == given.spelled else f"{key.name}, given as {given.spelled}"
    return ConfigProblem(field=given.spelled, reason=reason, suggestion=f"{name}: {key.meaning}")


def _missing(key: Key) -> ConfigProblem:
    return ConfigProblem(field=key.name, reason="it is missing", suggestion=f"give {key.name}: {key.meaning}")
