"""Our loss against TRL's on the same batch and the same weights: gradients agree.

Needs TRL in an environment of its own: ``scripts/peer-check`` makes one and runs this.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from functions.learner.objective import micro_batch_loss
from functions.learner.rows import TrainRow
from functions.learner.train_batch import TrainBatch, prepare_batch
from shared.training.aggregation import LossDenominators
from shared.training.forward import trained_logits
from shared.training.padding import pad_to_batch
from shared.training.rows import sort_rows
from tests.unit.functions.learner.builders import (
    gradient_of,
    make_config,
    ragged_rows,
    relative_gap,
    tiny_model,
    with_numbers,
)

trl = pytest.importorskip("trl", reason="run scripts/peer-check")

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("default")]

LONGEST = 9
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"loss_type": "grpo"}, {"loss_agg_mode": "seq-mean-token-mean"}),
    "dr_grpo": ({"loss_type": "dr_grpo"}, {"loss_agg_mode": "seq-mean-token-sum-norm"}),
    "dapo": ({"loss_type": "dapo", "epsilon_high": 0.28}, {"loss_agg_mode": "token-mean", "clip_ratio_high": 0.28}),
    "dapo with a KL term": (
        {"loss_type": "dapo", "beta": 0.1, "use_bias_correction_kl": False},
        {"loss_agg_mode": "token-mean", "kl_loss_type": "low_var_kl", "kl_loss_coef": 0.1},
    ),
    "grpo with dual clip": (
        {"loss_type": "grpo", "delta": 1.5},
        {"loss_agg_mode": "seq-mean-token-mean", "clip_ratio_c": 1.5},
    ),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        {"loss_agg_mode": "seq-mean-token-mean", "loss_mode": "gspo"},
    ),
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 1.4},
        {
            "loss_agg_mode": "token-mean",
            "loss_mode": "cispo",
            "clip_ratio_low": 1.0,
            "clip_ratio_high": 0.4,
        },
    ),
    "dapo with an entropy bonus": (
        {"loss_type": "dapo", "entropy_coef": 0.05},
        {"loss_agg_mode": "token-mean", "entropy_coeff": 0.05},
    ),
}


def batch_of(**config: Any) -> TrainBatch:
    """Twelve ragged rows with masked tokens, each with at least one in the loss: TRL counts rows without one too."""
    rows = []
    for row in sort_rows(with_numbers(ragged_rows(), "reference_logprobs")):
        mask = row.loss_mask.copy()
        mask[0] = True
        rows.append(replace(row, loss_mask=mask))
    return prepare_batch(rows, make_config(max_completion_tokens=LONGEST, **config))


def our_gradient(model: PreTrainedModel, batch: TrainBatch, old: Tensor, config: dict[str, Any]) -> Tensor:
    """In four micro-batches."""
    ours = make_config(max_completion_tokens=LONGEST, **config)
    denominators = LossDenominators.of(batch.loss_mask, LONGEST)
    with trained_logits(model, share_prompts=True) as logits_of:
        for start in range(0, 12, 3):
            indices = list(range(start, start + 3))
            tensors = batch.select(indices, old, torch.device("cpu"))
            rows = [batch.rows[index] for index in indices]
            micro_batch_loss(logits_of, rows, tensors, denominators, ours).loss.backward()
    return gradient_of(model)


def their_gradient(
    model: PreTrainedModel, batch: TrainBatch, old: Tensor, config: dict[str, Any], folder: Path
) -> Tensor:
    """In one batch."""
    trainer = trainer_of(model, config, folder)
    rows = batch.rows
    real = pad_to_batch([np.ones(row.num_tokens, np.int64) for row in rows])
    inputs = {
        **left_padded(rows),
        "completion_ids": pad_to_batch([row.completion_token_ids for row in rows]),
        "completion_mask": real,
        "tool_mask": batch.loss_mask.long(),
        "advantages": batch.advantages.sum(-1) / batch.loss_mask.sum(-1),
        "old_per_token_logps": old,
        "ref_per_token_logps": batch.reference_logprobs,
        "num_items_in_batch": batch.loss_mask.sum(),
    }
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    trainer._compute_loss(trainer.model, inputs).backward()
    return gradient_of(model)


def left_padded(rows: list[TrainRow]) -> dict[str, Tensor]:
    """TRL's prompts: padding on the left."""
    longest = max(row.prompt_token_ids.size for row in rows)
    prompts, masks = [], []
    for row in rows:
        padding = longest - row.prompt_token_ids.size
        prompts.append(np.pad(row.prompt_token_ids, (padding, 0)))
        masks.append(np.pad(np.ones(row.prompt_token_ids.size, np.int64), (padding, 0)))
    return {"prompt_ids": pad_to_batch(prompts), "prompt_mask": pad_to_batch(masks)}


def trainer_of(model: PreTrainedModel, config: dict[str, Any], folder: Path) -> Any:
    """TRL's trainer around the model; it never generates. With a KL term it loads the reference by its path."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model.save_pretrained(folder / "model")
    model.config._name_or_path = str(folder / "model")
    words = Tokenizer(models.WordLevel({str(word): word for word in range(model.config.vocab_size)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    args = trl.GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=12,
        num_generations=3,
        max_completion_length=LONGEST,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        **config,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trl.GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=args,
            train_dataset=Dataset.from_list([{"prompt": "1 2"}] * 12),
            processing_class=PreTrainedTokenizerFast(tokenizer_object=words, eos_token="1", pad_token="0"),
        )


@pytest.mark.parametrize("case", CASES)
def test_gradients_agree(case: str, tmp_path: Path) -> None:
    theirs, ours = CASES[case]
    batch = batch_of(**ours)
    old = torch.from_numpy(np.random.default_rng(5).uniform(-4.0, -2.0, batch.loss_mask.shape)).float()

    expected = their_gradient(tiny_model(), batch, old, theirs, tmp_path)
    gradient = our_gradient(tiny_model(), batch, old, ours)

    assert relative_gap(gradient, expected) < 1e-5
