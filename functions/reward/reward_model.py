"""Rewards by a reward model: a transformers sequence classifier with one label. Needs torch and transformers.

Shapes: B sequences of a batch, T tokens of the longest of them.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.utils import logging as transformers_logging

from functions.reward.length_batches import length_batches
from functions.reward.outcome import Asked
from shared.contracts.errors import InvalidInput
from shared.modeling.errors import UnknownModel, UnsupportedModel
from shared.modeling.folder import CONFIG_FILES, WEIGHT_FILES, model_folder
from shared.modeling.loading import load_config
from shared.modeling.threads import use_threads
from shared.modeling.tokenizer import Tokenizer


class RewardModel:
    """The classifier and its own tokenizer, which need not be the policy's."""

    def __init__(self, path: str) -> None:
        self.tokenizer = Tokenizer.load(path)
        self._model = _load_classifier(path)
        self._pads_by_choice = self._model.config.get_text_config().pad_token_id is None

    def token_ids(self, asked: Asked) -> list[list[int]]:
        """Prompt and completion as the reward model's tokens: as a chat where both know one, else as one text."""
        return [
            self._chat_ids(prompt.messages, completion.text)
            if prompt.messages is not None and self.tokenizer.chat_template is not None
            else self.tokenizer.encode(prompt.text + completion.text)
            for prompt, completion in asked
        ]

    def score(self, sequences: Sequence[Sequence[int]], *, batch_tokens: int, threads: int) -> list[float]:
        """The logit of each sequence, in the order given, in float32.

        Batches hold sequences of like length, the longest first, padded on the right.
        """
        use_threads(threads)
        rewards = [0.0] * len(sequences)
        with torch.inference_mode():
            for batch in length_batches([len(sequence) for sequence in sequences], batch_tokens):
                logits = self._logits([sequences[index] for index in batch])
                for index, logit in zip(batch, logits.tolist(), strict=True):
                    rewards[index] = logit
        return rewards

    def _logits(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        """[B]"""
        length = max(map(len, sequences))
        padding = self._padding_token(sequences)
        if padding is None and len(sequences) > 1:
            return torch.cat([self._logits([sequence]) for sequence in sequences])
        rows = [[*sequence, *[padding or 0] * (length - len(sequence))] for sequence in sequences]
        ids = torch.tensor(rows, device=self._model.device)
        lengths = torch.tensor([len(sequence) for sequence in sequences], device=self._model.device)
        mask = (torch.arange(length, device=self._model.device)[None] < lengths[:, None]).long()
        # [B, T] both; the classifier looks for the last token that is not padding.
        logits: torch.Tensor = self._model(input_ids=ids, attention_mask=mask).logits
        return logits[:, 0].float()

    def _padding_token(self, sequences: Sequence[Sequence[int]]) -> int | None:
        """The checkpoint's; where it names none any other token will do, and ``None`` if all of them are in use."""
        config = self._model.config.get_text_config()
        if self._pads_by_choice:
            used = set().union(*sequences)
            config.pad_token_id = next((token for token in range(config.vocab_size) if token not in used), None)
        padding: int | None = config.pad_token_id
        return padding

    def _chat_ids(self, messages: Sequence[dict[str, Any]], completion: str) -> list[int]:
        conversation = [*messages, {"role": "assistant", "content": completion}]
        return self.tokenizer.apply_chat_template(conversation, add_generation_prompt=False)


@lru_cache(maxsize=2)
def load_reward_model(path: str) -> RewardModel:
    """The model, kept: reading it again for each call would cost more than the scoring."""
    return RewardModel(path)


def _load_classifier(path: str) -> PreTrainedModel:
    """In float32 on a CPU, bfloat16 on a GPU; in eval mode. Raises UnknownModel, UnsupportedModel."""
    config = load_config(path)
    if config.num_labels != 1:
        raise UnsupportedModel(f"{path} has {config.num_labels} labels: a reward model has one, its reward")
    folder: Path = model_folder(path, CONFIG_FILES + WEIGHT_FILES)
    on_gpu = torch.cuda.is_available()
    transformers_logging.disable_progress_bar()
    verbosity = transformers_logging.get_verbosity()
    # It prints a report about missing weights, which are refused below.
    transformers_logging.set_verbosity_error()
    try:
        model, report = AutoModelForSequenceClassification.from_pretrained(
            folder,
            config=config,
            dtype=torch.bfloat16 if on_gpu else torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except OSError as error:
        raise UnknownModel(f"The weights of {path} cannot be read: {error}") from error
    except ValueError as error:
        raise UnsupportedModel(f"{path} is not a sequence classifier: {error}") from error
    finally:
        transformers_logging.set_verbosity(verbosity)
    if report["missing_keys"]:
        raise InvalidInput(
            f"{path} is no reward model: it has no weights for {', '.join(sorted(report['missing_keys']))}, which "
            "would be random"
        )
    return model.to("cuda" if on_gpu else "cpu").eval()
