"""The built-in verifiers by the name that a run's config uses."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from functions.reward.rules.base import Rule
from functions.reward.rules.exact_match import exact_match
from functions.reward.rules.exact_number import exact_number
from functions.reward.rules.math import Math
from functions.reward.rules.multiple_choice import MultipleChoice
from functions.reward.rules.reasoning_gym import reasoning_gym
from functions.reward.rules.regex import Regex
from shared.contracts.errors import InvalidInput
from shared.contracts.reward import MathParameters, MultipleChoiceParameters, RuleParameters

RULES: Mapping[str, Rule] = {
    "exact_match": exact_match,
    "exact_number": exact_number,
    "reasoning_gym": reasoning_gym,
}
"""Rules without parameters."""

PARAMETRISED: Mapping[str, tuple[Callable[[Any], Rule], Callable[[], Any] | None]] = {
    "math": (Math, MathParameters),
    "multiple_choice": (MultipleChoice, MultipleChoiceParameters),
    "regex": (Regex, None),
}
"""Rules with parameters: how one is made of them, and the defaults where there are any."""

UNBOUNDED = frozenset({"math", "regex"})
"""Rules that may take for ever over a completion, and so need a process that can be ended."""


def rule_named(name: str, parameters: RuleParameters | None = None) -> Rule:
    """The rule of that name. Raises InvalidInput with the nearest name, or all of them."""
    if name in RULES:
        return RULES[name]
    if name not in PARAMETRISED:
        names = [*RULES, *PARAMETRISED]
        nearest = get_close_matches(name, names, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"the rules are {', '.join(sorted(names))}."
        raise InvalidInput(f"There is no reward rule {name!r}: {hint}", rule=name)
    make, defaults = PARAMETRISED[name]
    if parameters is None:
        if defaults is None:
            raise InvalidInput(f"The reward rule {name!r} needs parameters.", rule=name)
        parameters = defaults()
    return make(parameters)
