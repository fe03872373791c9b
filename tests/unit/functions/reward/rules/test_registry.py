"""Rules by name."""

from typing import get_args

import pytest

from functions.reward.rules.exact_number import exact_number
from functions.reward.rules.registry import PARAMETRISED, RULES, UNBOUNDED, rule_named
from shared.contracts.errors import InvalidInput
from shared.contracts.reward import RuleName


def test_a_rule_is_found_by_its_name() -> None:
    assert rule_named("exact_number") is exact_number
    assert all(rule_named(name) is rule for name, rule in RULES.items())


def test_every_name_of_the_contract_has_its_rule_and_no_other() -> None:
    # Programs are run by the sandbox, which is no pure rule.
    assert {*RULES, *PARAMETRISED, "code"} == set(get_args(RuleName))
    assert {*RULES, *PARAMETRISED} >= UNBOUNDED


def test_a_misspelt_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="'exact_numbr': did you mean 'exact_number'"):
        rule_named("exact_numbr")


def test_an_unknown_name_is_refused_with_all_names() -> None:
    with pytest.raises(InvalidInput, match="the rules are exact_match, exact_number"):
        rule_named("zzz")
