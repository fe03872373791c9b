"""The reference stage: logprobs of what others sampled."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from functions.reference.app import ReferenceHandler
from shared.codec.token_values import decode_token_values
from shared.contracts.errors import Cancelled, InvalidInput, MissingBlob
from shared.contracts.policy import BlobRef
from shared.contracts.reference import ReferenceInputs
from shared.contracts.stage import Stage
from shared.modeling.weights import state_dict_to_blob
from tests.unit.functions.learner.builders import tiny_model
from tests.unit.shared.training.stage_world import NUM_SAMPLES, ROWS, GoneAfterOnePass, StageWorld, stage_world


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


def late(world: StageWorld) -> StageWorld:
    """Where a call's time is over: a replica that does not know its pace makes one pass all the same."""
    return replace(world, context=replace(world.context, deadline_at=time.time() - 1))


def one_by_one(prompts: BlobRef, partial: BlobRef | None = None, **fields: Any) -> ReferenceInputs:
    """A pass for every completion."""
    plain: dict[str, Any] = {"row_uids": ROWS, "num_samples": NUM_SAMPLES, "temperature": 0.7, "max_token_len": 1}
    return ReferenceInputs(prompts=prompts, partial=partial, **(plain | fields))


@pytest.mark.parametrize("is_cold", [True, False])
async def test_a_pass_in_segments_is_bit_equal_to_one_in_a_piece(world: StageWorld, is_cold: bool) -> None:
    prompts, completions = await world.store_batch()
    policy = await world.store_policy()
    whole = await world.call(ReferenceHandler(world.settings), one_by_one(prompts), policy)
    handler, outcome, num_segments = ReferenceHandler(world.settings), None, 0

    while outcome is None or outcome.status == "continue":
        handler = ReferenceHandler(world.settings) if is_cold else handler
        # A warm replica that knows its pace would rather do nothing than be late.
        in_time = not is_cold and outcome is not None
        partial = None if outcome is None else outcome.outputs.partial
        outcome = await (world if in_time else late(world)).call(handler, one_by_one(prompts, partial), policy)
        num_segments += 1
        assert (outcome.policy_version, outcome.weights_digest) == (0, policy.digest)
        assert (outcome.outputs.logprobs is None) == (outcome.outputs.partial is not None)

    assert num_segments == (len(completions) if is_cold else 2)
    assert outcome.outputs == whole.outputs


async def test_a_pass_for_which_no_call_has_the_time_is_refused(world: StageWorld) -> None:
    prompts, _ = await world.store_batch()
    policy, handler = await world.store_policy(), ReferenceHandler(world.settings)
    begun = (await late(world).call(handler, one_by_one(prompts), policy)).outputs.partial
    idle = await late(world).call(handler, one_by_one(prompts, begun), policy)
    assert idle.status == "continue"
    with pytest.raises(InvalidInput, match=r"smaller reference\.log_prob_max_token_len_per_gpu, or a longer timeout"):
        await late(world).call(handler, one_by_one(prompts, idle.outputs.partial), policy)

    gone_on = await world.call(handler, one_by_one(prompts, idle.outputs.partial), policy)
    whole = await world.call(ReferenceHandler(world.settings), one_by_one(prompts), policy)
    assert gone_on.outputs == whole.outputs


async def test_a_call_that_nobody_waits_for_ends_between_two_passes(world: StageWorld) -> None:
    prompts, _ = await world.store_batch()
    stop = GoneAfterOnePass()
    stopped = replace(world, context=replace(world.context, stop=stop))
    policy = await world.store_policy()
    with pytest.raises(Cancelled, match="the caller is gone"):
        await stopped.call(ReferenceHandler(world.settings), one_by_one(prompts), policy)
    assert stop.num_asked == 2


async def test_a_partial_result_that_belongs_elsewhere_is_refused(world: StageWorld) -> None:
    prompts, _ = await world.store_batch()
    policy, handler = await world.store_policy(), ReferenceHandler(world.settings)
    partial = (await late(world).call(handler, one_by_one(prompts), policy)).outputs.partial
    other = policy.model_copy(update={"weights": await world.put("policy", state_dict_to_blob(tiny_model(seed=1)))})

    with pytest.raises(InvalidInput, match="these scores are of the weights"):
        await world.call(handler, one_by_one(prompts, partial), other)
    with pytest.raises(InvalidInput, match="is no cut scoring pass"):
        await world.call(handler, one_by_one(prompts, policy.weights), policy)
    with pytest.raises(InvalidInput, match="none of this call's"):
        await world.call(handler, one_by_one(prompts, partial, num_samples=1, row_uids=ROWS[:1]), policy)
