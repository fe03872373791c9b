"""Dropout is off in every pass that scores, whatever the model's config asks for."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from functions.critic.app import CriticHandler
from functions.critic.value_model import initial_value_model
from functions.reference.app import ReferenceHandler
from shared.codec.token_values import TokenValues, decode_token_values
from shared.contracts.critic import CriticInputs, ValuesInputs
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.reference import ReferenceInputs
from shared.contracts.stage import Stage
from shared.modeling.weights import state_dict_to_blob
from tests.unit.functions.learner.builders import VOCAB
from tests.unit.shared.training.stage_world import NUM_SAMPLES, ROWS, StageWorld, stage_world

RATES = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5}


def save_model(folder: Path, **rates: float) -> GPT2LMHeadModel:
    """A model whose plain pass has dropout in every block."""
    torch.manual_seed(0)
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=VOCAB, n_positions=64, **rates)
    config.bos_token_id = config.eos_token_id = None
    model = GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    return model


async def scored(world: StageWorld, prompts: BlobRef, stage: Stage, **rates: float) -> TokenValues:
    """What a cold replica says of the batch."""
    model = save_model(Path(world.model.path), **rates)
    if stage is Stage.CRITIC:
        model = initial_value_model(world.model.path)
        torch.nn.init.ones_(model.get_output_embeddings().weight)
    weights = await world.put("policy", state_dict_to_blob(model))
    policy = PolicyRef(version=0, model=world.model, weights=weights)
    if stage is Stage.CRITIC:
        values = ValuesInputs(prompts=prompts, row_uids=ROWS, num_samples=NUM_SAMPLES)
        outcome = await world.call(CriticHandler(world.settings), CriticInputs(operation=values), policy)
        ref, name = outcome.outputs.values, "values"
    else:
        inputs = ReferenceInputs(prompts=prompts, row_uids=ROWS, num_samples=NUM_SAMPLES, temperature=1.0)
        outcome = await world.call(ReferenceHandler(world.settings), inputs, policy)
        ref, name = outcome.outputs.logprobs, "reference_logprobs"
    return decode_token_values(await world.context.blobs.get(ref), [name])[name]


@pytest.mark.parametrize("stage", [Stage.REFERENCE, Stage.CRITIC])
async def test_a_model_with_dropout_says_what_it_says_without_bit_for_bit(tmp_path: Path, stage: Stage) -> None:
    async with stage_world(tmp_path, stage) as world:
        prompts, _ = await world.store_batch()
        without = await scored(world, prompts, stage)
        for _ in range(2):
            found = await scored(world, prompts, stage, **RATES)
            assert all(np.array_equal(found[id], numbers) for id, numbers in without.items())
    assert any(numbers.any() for numbers in without.values())
