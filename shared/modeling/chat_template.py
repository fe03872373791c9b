"""Chat templates, rendered as transformers renders them and without it: same options, same sandbox.

A template comes with the model, so it is untrusted code: it runs in Jinja's immutable sandbox and sees plain
data only.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Environment, Template, TemplateError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shared.contracts.errors import InvalidInput


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    *,
    add_generation_prompt: bool,
) -> str:
    """The prompt text of a conversation; `variables` are the tokenizer's special tokens by name.

    Keys whose value is None are left out of a message, because templates would print them.
    Raises InvalidInput when the template refuses the messages.
    """
    plain = [{key: value for key, value in message.items() if value is not None} for message in messages]
    try:
        return _compile(template).render(
            messages=plain,
            add_generation_prompt=add_generation_prompt,
            tools=None,
            documents=None,
            **variables,
        )
    except TemplateError as error:
        raise InvalidInput(f"The model's chat template refused the messages: {error}") from error


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's text for loss masks, which here come from the rollouts."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=16)
def _compile(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML characters, which would change the prompt."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
