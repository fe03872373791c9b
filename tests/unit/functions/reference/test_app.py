"""The reference stage: logprobs of what others sampled."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import torch

from functions.reference.app import ReferenceHandler
from shared.codec.token_values import decode_token_values
from shared.contracts.errors import InvalidInput, MissingBlob
from shared.contracts.reference import ReferenceInputs
from shared.contracts.stage import Stage
from tests.unit.functions.learner.builders import tiny_model
from tests.unit.shared.training.stage_world import NUM_SAMPLES, ROWS, StageWorld, stage_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[StageWorld]:
    async with stage_world(tmp_path, Stage.REFERENCE) as world:
        yield world


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("max_token_len", [12, 4096])
async def test_logprobs_are_those_of_the_model_at_the_sampling_temperature(
    world: StageWorld, temperature: float, max_token_len: int
) -> None:
    prompts, completions = await world.store_batch()
    inputs = ReferenceInputs(
        prompts=prompts,
        row_uids=ROWS,
        num_samples=NUM_SAMPLES,
        temperature=temperature,
        max_token_len=max_token_len,
    )
    outcome = await world.call(ReferenceHandler(world.settings), inputs, await world.store_policy())
    stored = await world.context.blobs.get(outcome.outputs.logprobs)
    logprobs = decode_token_values(stored, ["reference_logprobs"])["reference_logprobs"]
    model = tiny_model()
    assert logprobs.keys() == {completion.id for completion in completions}
    for completion in completions:
        prompt = (1 + ROWS.index(completion.id.row_uid), 2, 3)
        sequence = torch.tensor([[*prompt, *completion.token_ids.tolist()]])
        with torch.no_grad():
            full = (model(sequence).logits[0, 2:-1].double() / temperature).log_softmax(-1)
        expected = full[torch.arange(len(completion.token_ids)), sequence[0, 3:]].numpy()
        np.testing.assert_allclose(
            logprobs[completion.id], np.where(completion.loss_mask, expected, 0.0), atol=1e-5, rtol=0
        )


async def test_it_says_what_served_the_call(world: StageWorld) -> None:
    prompts, _ = await world.store_batch()
    policy = await world.store_policy()
    inputs = ReferenceInputs(prompts=prompts, row_uids=ROWS, num_samples=NUM_SAMPLES, temperature=1.0)
    outcome = await world.call(ReferenceHandler(world.settings), inputs, policy)
    assert (outcome.policy_version, outcome.weights_digest) == (0, policy.digest)


async def test_a_shard_scores_its_own_rows_only(world: StageWorld) -> None:
    prompts, _ = await world.store_batch()
    inputs = ReferenceInputs(prompts=prompts, row_uids=ROWS[1:], num_samples=NUM_SAMPLES, temperature=1.0)
    outcome = await world.call(ReferenceHandler(world.settings), inputs, await world.store_policy())
    stored = await world.context.blobs.get(outcome.outputs.logprobs)
    assert {id.row_uid for id in decode_token_values(stored, ["reference_logprobs"])["reference_logprobs"]} == {ROWS[1]}


async def test_a_completion_that_is_not_stored_is_named(world: StageWorld) -> None:
    prompts, completions = await world.store_batch(num_stored=5)
    inputs = ReferenceInputs(prompts=prompts, row_uids=ROWS, num_samples=NUM_SAMPLES, temperature=1.0)
    with pytest.raises(MissingBlob, match=str(completions[5].id)):
        await world.call(ReferenceHandler(world.settings), inputs, await world.store_policy())


async def test_a_row_that_is_no_prompt_and_a_call_without_weights_are_refused(world: StageWorld) -> None:
    prompts, _ = await world.store_batch()
    inputs = ReferenceInputs(prompts=prompts, row_uids=("train-9.e0",), num_samples=NUM_SAMPLES, temperature=1.0)
    with pytest.raises(InvalidInput, match=r"train-9\.e0"):
        await world.call(ReferenceHandler(world.settings), inputs, await world.store_policy())
    with pytest.raises(InvalidInput, match="policy"):
        await world.call(ReferenceHandler(world.settings), inputs, None)
