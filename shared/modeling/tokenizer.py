"""A model's tokenizer without transformers: tokenizer.json by the tokenizers library, and the chat template.

The controller tokenises prompts and every stage decodes with it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer

from shared.contracts.errors import InvalidInput
from shared.modeling.chat_template import render_chat
from shared.modeling.errors import UnknownModel
from shared.modeling.folder import TOKENIZER_FILES, model_folder

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """Text to token ids and back, exactly as tokenizer.json says."""

    fast: FastTokenizer
    special_tokens: Mapping[str, str]
    """Special tokens by role: `{"eos_token": "</s>", ...}`."""
    eos_token_ids: tuple[int, ...]
    """Any of these ends a completion: the tokenizer's, then those of the generation config."""
    pad_token_id: int
    """The padding token; models without one are padded with their first EOS, or with 0."""
    chat_template: str | None
    fingerprint: str
    """SHA-256 of tokenizer.json: equal fingerprints give equal ids."""

    @classmethod
    def load(cls, path_or_hub_id: str | Path) -> "Tokenizer":
        """Reads a Hugging Face folder. Raises UnknownModel when it has no readable tokenizer.json."""
        folder = model_folder(path_or_hub_id, TOKENIZER_FILES)
        try:
            content = (folder / "tokenizer.json").read_bytes()
            fast = FastTokenizer.from_str(content.decode())
        except OSError as error:
            raise UnknownModel(f"{path_or_hub_id} has no tokenizer.json: {error.strerror}.") from error
        except Exception as error:  # the library's parser raises plain Exception
            raise UnknownModel(f"The tokenizer.json of {path_or_hub_id} cannot be read: {error}") from error
        # What tokenizer.json may ask for in batches would cut or pad single prompts.
        fast.no_padding()
        fast.no_truncation()
        config = _read_json(folder / "tokenizer_config.json")
        special_tokens = _special_tokens(_read_json(folder / "special_tokens_map.json") | config)
        eos_token_ids = _eos_token_ids(folder, fast, special_tokens.get("eos_token"))
        pad_token_id = fast.token_to_id(special_tokens.get("pad_token", ""))
        return cls(
            fast=fast,
            special_tokens=special_tokens,
            eos_token_ids=eos_token_ids,
            pad_token_id=pad_token_id if pad_token_id is not None else next(iter(eos_token_ids), 0),
            chat_template=_chat_template(folder, config),
            fingerprint=hashlib.sha256(content).hexdigest(),
        )

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included; a model's embedding may be padded beyond it."""
        return self.fast.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Ids of a plain-text prompt, with the special tokens that tokenizer.json's own post-processor adds
        (a BOS for some models): what `AutoTokenizer(text).input_ids` gives."""
        return self.fast.encode(text).ids

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        *,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Ids of a conversation rendered by the model's template, which writes all special tokens itself.

        `variables` are what the template may be told besides, such as `{"enable_thinking": False}`.
        Raises InvalidInput when there is no template or it refuses the messages.
        """
        if self.chat_template is None:
            raise InvalidInput("The model has no chat template: give plain-text prompts instead of messages.")
        text = render_chat(
            self.chat_template,
            messages,
            {**self.special_tokens, **(variables or {})},
            add_generation_prompt=add_generation_prompt,
        )
        return self.fast.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        return self.fast.decode(list(token_ids), skip_special_tokens=skip_special_tokens)


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """A special token is spelled as a string or as an object with its `content`."""
    named = {role: config[role] for role in _SPECIAL_TOKENS if config.get(role)}
    return {role: token["content"] if isinstance(token, dict) else token for role, token in named.items()}


def _eos_token_ids(folder: Path, fast: FastTokenizer, eos_token: str | None) -> tuple[int, ...]:
    generation = _read_json(folder / "generation_config.json") or _read_json(folder / "config.json")
    configured = generation.get("eos_token_id")
    ids = [fast.token_to_id(eos_token or ""), *(configured if isinstance(configured, list) else [configured])]
    return tuple(dict.fromkeys(token_id for token_id in ids if token_id is not None))


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The default template: its own file in newer folders, a string or a list of named ones in older."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        return next((entry["template"] for entry in template if entry["name"] == "default"), None)
    return template


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnknownModel(f"{file} is not valid JSON: {error}") from error
    return content
