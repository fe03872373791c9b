"""A config file: YAML (JSON is YAML) to the document that ``load_config`` takes."""

from typing import Any

import yaml

from controller.runs.config.overrides import UNREADABLE
from controller.runs.config.problems import ConfigInvalid, ConfigProblem


def parse_document(text: str) -> dict[str, Any]:
    """Read the text of a config file. Raises ``ConfigInvalid`` with the line of what is no YAML mapping."""
    try:
        document = yaml.load(text, Loader=_UniqueKeys)
    except UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        where = "the config file" if mark is None else f"line {mark.line + 1}"
        what = getattr(error, "problem", None) or str(error)
        raise _invalid(f"{where} is not readable: {what}", "correct that line") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _invalid("the config is not a mapping of keys to values", "write it as rollout: {n: 8}")
    return document


class _UniqueKeys(yaml.SafeLoader):
    """Plain YAML in which a key stands once: the last of two would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode) or name.tag == "tag:yaml.org,2002:merge":
                continue
            if name.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{name.value} is given twice", name.start_mark)
            seen.add(name.value)
        return super().construct_mapping(node, deep)


def _invalid(reason: str, suggestion: str) -> ConfigInvalid:
    return ConfigInvalid([ConfigProblem(field="config", reason=reason, suggestion=suggestion)])
