"""A row's prompt to token ids: text as it is, chat messages by the model's template."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from controller.runs.config.data import DataConfig
from controller.runs.config.problems import shown

Messages = tuple[dict[str, Any], ...]


class PromptTokenizer(Protocol):
    """What is needed of ``shared.modeling.tokenizer.Tokenizer``."""

    def encode(self, text: str) -> list[int]:
        """Ids of a plain text."""
        ...

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, variables: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Ids of chat messages, up to where the completion starts. ``InvalidInput`` if the template refuses them."""
        ...

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A prompt as the model and the reward see it."""

    token_ids: tuple[int, ...]
    text: str
    messages: Messages | None
    """``None`` for plain text."""


def render_prompt(content: object, data: DataConfig, tokenizer: PromptTokenizer) -> Rendered:
    """The prompt of a row. ``ValueError`` or the tokenizer's ``InvalidInput`` says why there is none."""
    if isinstance(content, str) and not data.apply_chat_template:
        if data.system_prompt is not None:
            raise ValueError("plain text has no place for data.system_prompt; set data.apply_chat_template to true")
        return Rendered(token_ids=tuple(tokenizer.encode(content)), text=content, messages=None)
    messages = _with_system_prompt(_messages(content), data.system_prompt)
    token_ids = tokenizer.apply_chat_template(messages, variables=data.apply_chat_template_kwargs)
    text = tokenizer.decode(token_ids, skip_special_tokens=False)
    return Rendered(token_ids=tuple(token_ids), text=text, messages=messages)


def _messages(content: object) -> Messages:
    """Chat messages as they stand; text is what a user says."""
    if isinstance(content, str):
        if not content:
            raise ValueError("the prompt is empty")
        return ({"role": "user", "content": content},)
    if not isinstance(content, list) or not content:
        raise ValueError(f"a prompt is text or a list of chat messages, not {shown(content)}")
    for number, message in enumerate(content):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError(f"message {number} has no role")
        if not isinstance(message.get("content"), str) and not message.get("tool_calls"):
            raise ValueError(f"message {number} has no text as its content")
    return tuple(content)


def _with_system_prompt(messages: Messages, system_prompt: str | None) -> Messages:
    """A row's own system message stays."""
    if system_prompt is None or messages[0]["role"] == "system":
        return messages
    return ({"role": "system", "content": system_prompt}, *messages)
