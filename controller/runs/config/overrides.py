"""Dotted overrides of the command line: ``rollout.n=16``."""

from collections.abc import Sequence
from typing import Any

import yaml

from controller.runs.config.aliases import ALIASES, without_prefix
from controller.runs.config.keys import known_keys
from controller.runs.config.problems import ConfigProblem

UNREADABLE = (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError)
"""What the library raises for text that is no value: also for a date that no calendar has, or a number too long."""


def parse_overrides(assignments: Sequence[str]) -> tuple[dict[str, Any], list[ConfigProblem]]:
    """Read ``key=value`` assignments; values are YAML, and of one key given twice the last one holds.

    Returns the values by key as spelled, and the assignments that cannot be read.
    """
    values: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals or not name:
            problems.append(
                ConfigProblem(
                    field=name or "overrides",
                    reason="an override needs a key, an equals sign and a value",
                    suggestion="write it as rollout.n=16",
                )
            )
            continue
        try:
            value = yaml.safe_load(text)
        except UNREADABLE:
            problems.append(
                ConfigProblem(
                    field=name,
                    reason="the value is not YAML",
                    suggestion="quote text and close brackets, as in data.train_files='[a.jsonl, b.jsonl]'",
                )
            )
            continue
        values[name] = text.strip() if _meant_as_text(name, value) else value
    return values, problems


def _meant_as_text(name: str, value: object) -> bool:
    """Whether YAML made another scalar of a text: ``trainer.experiment_name=001`` is not the number 1."""
    bare = without_prefix(name)
    alias = ALIASES.get(bare)
    key = known_keys().get(alias.key if alias else bare)
    return key is not None and key.accepts_text and not isinstance(value, str | list | dict | None)
