"""What must hold between the keys of a schedule: bounds in order, and no key of a technique that is off."""

from controller.runs.config.keys import known_keys
from controller.runs.config.rule import Broken, Rule
from controller.runs.config.schedule_section import DEFAULT_BUFFER_S


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


def number_is_chosen(least: int | None, enable: bool, num_actors: int | None) -> Broken | None:
    """The fewest actors bound a choice."""
    if least is None or (enable and num_actors is None):
        return None
    if enable:
        return Broken("it has no effect beside rollout.num_actors", "leave one of the two out")
    return Broken("it has no effect while schedule.scaling.enable is false", "leave it out")


def buffer_is_used(buffer_s: float, prewarm: bool, enable: bool) -> Broken | None:
    """A buffer belongs to a replica that is held or started early."""
    if prewarm or enable or buffer_s == DEFAULT_BUFFER_S:
        return None
    return Broken("nothing is held or pre-warmed that it could be added to", "leave it out")


def _of_migration(name: str, default: object) -> Rule:
    def check(value: object, enable: bool) -> Broken | None:
        if enable or value == default:
            return None
        return Broken("it has no effect while schedule.migration.enable is false", "leave it out")

    return Rule((name, "schedule.migration.enable"), check, is_idle=True)


SCHEDULE_RULES: tuple[Rule, ...] = (
    Rule(("schedule.scaling.min_actors", "schedule.scaling.max_actors"), actors_in_order),
    Rule(
        ("schedule.scaling.min_actors", "schedule.scaling.enable", "rollout.num_actors"), number_is_chosen, is_idle=True
    ),
    Rule(("rollout.num_actors", "schedule.scaling.max_actors"), forced_within),
    Rule(
        ("schedule.holding.buffer_s", "schedule.holding.prewarm", "schedule.holding.enable"),
        buffer_is_used,
        is_idle=True,
    ),
    *(
        _of_migration(name, key.default)
        for name, key in known_keys().items()
        if name.startswith("schedule.migration.") and not name.endswith(".enable")
    ),
)
