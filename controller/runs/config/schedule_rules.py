"""What must hold between the keys of a schedule: bounds in order, and no key of a technique that is off."""

from controller.runs.config.keys import known_keys
from controller.runs.config.rule import Broken, Rule


def actors_in_order(least: int | None, most: int | None) -> Broken | None:
    """The fewest actors are no more than the most."""
    if least is not None and most is not None and least > most:
        return Broken(f"schedule.scaling.max_actors is {most}", f"use at most {most}, or raise the other")
    return None


def forced_within(num_actors: int | None, most: int | None) -> Broken | None:
    """A number of actors that is forced is not bounded as well."""
    if num_actors is not None and most is not None:
        return Broken("it fixes the number that schedule.scaling.max_actors bounds", "leave one of the two out")
    return None


def chosen_number(value: object, default: object, enable: bool, num_actors: int | None) -> Broken | None:
    """A key of the choice of a number has no effect where none is chosen."""
    if value == default or (enable and num_actors is None):
        return None
    if enable:
        return Broken("it has no effect beside rollout.num_actors", "leave one of the two out")
    return Broken("it has no effect while schedule.scaling.enable is false", "leave it out")


def _chosen_number(name: str, default: object) -> Rule:
    def check(value: object, enable: bool, num_actors: int | None) -> Broken | None:
        return chosen_number(value, default, enable, num_actors)

    return Rule((name, "schedule.scaling.enable", "rollout.num_actors"), check, is_idle=True)


def _of_technique(name: str, default: object, switch: str) -> Rule:
    def check(value: object, enable: bool) -> Broken | None:
        if enable or value == default:
            return None
        return Broken(f"it has no effect while {switch} is false", "leave it out")

    return Rule((name, switch), check, is_idle=True)


def _buffer_is_used(buffer_s: float, prewarm: bool) -> Broken | None:
    if prewarm or buffer_s == known_keys()["schedule.holding.buffer_s"].default:
        return None
    return Broken("it has no effect while schedule.holding.prewarm is false", "leave it out")


SCHEDULE_RULES: tuple[Rule, ...] = (
    Rule(("schedule.scaling.min_actors", "schedule.scaling.max_actors"), actors_in_order),
    Rule(("rollout.num_actors", "schedule.scaling.max_actors"), forced_within),
    *(
        _chosen_number(f"schedule.scaling.{leaf}", known_keys()[f"schedule.scaling.{leaf}"].default)
        for leaf in ("lambda_", "min_actors")
    ),
    *(
        _of_technique(name, key.default, "schedule.migration.enable")
        for name, key in known_keys().items()
        if name.startswith("schedule.migration.") and not name.endswith(".enable")
    ),
    Rule(("schedule.holding.buffer_s", "schedule.holding.prewarm"), _buffer_is_used, is_idle=True),
)
