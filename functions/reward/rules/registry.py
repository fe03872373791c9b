"""The built-in verifiers by the name that a run's config uses."""

from difflib import get_close_matches

from functions.reward.rules.base import Rule
from functions.reward.rules.exact_match import exact_match
from functions.reward.rules.exact_number import exact_number
from functions.reward.rules.reasoning_gym import reasoning_gym
from shared.contracts.errors import InvalidInput

RULES: dict[str, Rule] = {
    "exact_match": exact_match,
    "exact_number": exact_number,
    "reasoning_gym": reasoning_gym,
}


def rule_named(name: str) -> Rule:
    """The rule of that name. Raises InvalidInput with the nearest name, or all of them."""
    rule = RULES.get(name)
    if rule is None:
        nearest = get_close_matches(name, RULES, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"the rules are {', '.join(sorted(RULES))}."
        raise InvalidInput(f"There is no reward rule {name!r}: {hint}", rule=name)
    return rule
