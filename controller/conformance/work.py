"""Checks of the work itself, with a small real input: reward with a tokenizer, rollout with a whole model."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from controller.conformance.checks import Check, CheckFailed, CheckSkipped, expect
from controller.conformance.protocol import NO_STORE, expect_refusal
from controller.conformance.settings import ConformanceSettings
from controller.conformance.subject import Answer, Subject
from controller.conformance.workshop import FAR_S, FENCE, Workshop
from shared.codec.completions import DamagedCompletion, decode_completion, encode_completion
from shared.contracts.call import BatchKey, StageCall, StageReply
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import CallConflict, MissingBlob
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.reward import RewardInputs, RewardOutputs, RuleReward, Scores
from shared.contracts.rollout import RolloutInputs, RolloutOutputs, Sampling, WorkItem
from shared.contracts.stage import Stage
from shared.contracts.wire import Wire
from shared.modeling.errors import UnknownModel
from shared.modeling.tokenizer import Tokenizer

ROWS: Mapping[str, tuple[str, str]] = {"row-0": ("12+30:", "42"), "row-1": ("5+2:", "7")}
"""Prompt and ground truth by row uid."""
NUM_SAMPLES = 2
MAX_TOKENS = 8
SOON_S = 0.5
NO_MODEL = "needs the folder of a model that the function sees: name it with --model, and here with --model-here"


def work_checks(subject: Subject, workshop: Workshop | None, settings: ConformanceSettings) -> Sequence[Check]:
    """The checks, in order."""
    name = f"does the work of {subject.stage}, once"
    match subject.stage:
        case Stage.REWARD | Stage.ROLLOUT:
            return (
                Check(name, lambda: _Work(subject, workshop, settings).whole()),
                Check("answers work whose deadline is near", lambda: _Work(subject, workshop, settings).near()),
            )
        case _:
            return (Check(name, _not_here),)


async def _not_here() -> str:
    raise CheckSkipped("its inputs are made by a run: start a short one with this function")


class _Work:
    """One small batch for the stage."""

    def __init__(self, subject: Subject, workshop: Workshop | None, settings: ConformanceSettings) -> None:
        if workshop is None:
            raise CheckSkipped(NO_STORE)
        self._subject = subject
        self._workshop = workshop
        self._model = ModelRef(path=settings.model)
        self._folder = settings.model_here
        try:
            self._tokenizer = Tokenizer.load(self._folder)
        except UnknownModel as error:
            raise CheckSkipped(NO_MODEL) from error
        self._ids = [SampleId(row, sample) for row in ROWS for sample in range(NUM_SAMPLES)]

    async def whole(self) -> str:
        """A result that keeps the contract; the same call again is the same answer, another body is refused."""
        batch = self._workshop.new_batch()
        call = await self._call(batch)
        answer = await self._subject.call(call)
        reply = self._accepted(call, answer)
        expect(reply.status == "done", f"its status is {reply.status!r}, though the deadline was far")
        said = await (
            self._scored(reply.outputs) if isinstance(reply.outputs, RewardOutputs) else self._sampled(call, reply)
        )
        again = await self._subject.call(call.model_copy(update={"attempt": 1, "trace_id": "again"}))
        expect(again.body == answer.body, f"the same call again is not the same answer: {again}")
        prompts = call.inputs.prompts.model_copy(update={"sha256": "0" * 64})
        other = call.inputs.model_copy(update={"prompts": prompts})
        expect_refusal(await self._subject.call(call.model_copy(update={"inputs": other})), CallConflict)
        return said

    async def near(self) -> str:
        """A result, ``continue``, or a problem that says what to do."""
        call = await self._call(self._workshop.new_batch(), deadline_in_s=SOON_S)
        answer = await self._subject.call(call)
        if answer.status == 200:
            return self._accepted(call, answer).status
        expect(answer.problem() is not None, f"it answers {answer}: neither a result nor a problem")
        return str(answer.status)

    async def _call(self, batch: BatchKey, deadline_in_s: float = FAR_S) -> StageCall[Any]:
        prompts = tuple(
            Prompt(row_uid=row, token_ids=tuple(self._tokenizer.encode(text)), text=text, ground_truth=truth)
            for row, (text, truth) in ROWS.items()
        )
        data = PromptBatch(prompts=prompts).model_dump_json().encode()
        ref = await self._workshop.blobs.put(batch.run, batch.step, "prompts", data)
        if self._subject.stage is Stage.REWARD:
            return await self._reward_call(batch, ref, deadline_in_s)
        return await self._rollout_call(batch, ref, deadline_in_s)

    async def _reward_call(self, batch: BatchKey, prompts: BlobRef, deadline_in_s: float) -> StageCall[Any]:
        samples = {id: encode_completion(self._completion(id)) for id in self._ids}
        await self._workshop.store.work.commit_samples(batch, fence=FENCE, samples=samples)
        inputs = RewardInputs(
            prompts=prompts,
            row_uids=tuple(ROWS),
            num_samples=NUM_SAMPLES,
            model=self._model,
            reward=RuleReward(name="exact_number"),
        )
        return self._workshop.call(inputs, batch=batch, deadline_in_s=deadline_in_s)

    async def _rollout_call(self, batch: BatchKey, prompts: BlobRef, deadline_in_s: float) -> StageCall[Any]:
        weights = await self._workshop.blobs.put(batch.run, 0, "weights", self._weights())
        items = [WorkItem(row_uid=row, samples=tuple(range(NUM_SAMPLES))) for row in ROWS]
        await self._workshop.store.work.put_items(batch, fence=FENCE, assigned=[], offered=items)
        inputs = RolloutInputs(
            prompts=prompts,
            num_samples=NUM_SAMPLES,
            sampling=Sampling(temperature=1.0, max_tokens=MAX_TOKENS, eos_token_ids=self._tokenizer.eos_token_ids),
            run_seed=0,
            max_num_sequences=len(self._ids),
        )
        policy = PolicyRef(version=0, model=self._model, weights=weights)
        return self._workshop.call(inputs, batch=batch, policy=policy, deadline_in_s=deadline_in_s)

    def _weights(self) -> bytes:
        file = Path(self._folder, "model.safetensors")
        if not file.is_file():
            raise CheckSkipped(f"{NO_MODEL}; it has to hold model.safetensors, one file")
        return file.read_bytes()

    def _completion(self, id: SampleId) -> Completion:
        """The right answer as the first sample, a wrong one as the others."""
        text, truth = ROWS[id.row_uid]
        tokens = np.array(self._tokenizer.encode(f"#{truth}" if id.sample == 0 else "#1000"), dtype=np.int32)
        return Completion(
            id=id,
            prompt_num_tokens=len(self._tokenizer.encode(text)),
            token_ids=tokens,
            rollout_logprobs=np.zeros(len(tokens), dtype=np.float32),
            processed_logprobs=np.zeros(len(tokens), dtype=np.float32),
            loss_mask=np.ones(len(tokens), dtype=np.bool_),
            segments=(0,),
            finish_reason="stop",
            policy_version=0,
            weights_digest="0" * 64,
            instance="conformance",
            started_at=1.0,
            ended_at=2.0,
        )

    def _accepted(self, call: StageCall[Any], answer: Answer) -> StageReply[Any]:
        expect(answer.status == 200, f"it answers {answer} and not 200")
        outputs: type[Wire] = RewardOutputs if self._subject.stage is Stage.REWARD else RolloutOutputs
        try:
            reply = StageReply[outputs].model_validate_json(answer.body)  # type: ignore[valid-type]  # a type as value
        except ValidationError as error:
            faults = [".".join(map(str, fault["loc"])) or "JSON" for fault in error.errors()]
            raise CheckFailed(f"its answer is no reply of this contract, at {', '.join(faults[:5])}") from None
        expect(reply.key == call.key, f"it was asked for {call.key} and answers for {reply.key}")
        expect(reply.served.instance, "its answer does not say which instance served it")
        expect(
            reply.served.started_at <= reply.timings.started_at <= reply.timings.ended_at,
            "the times in its answer are not in order",
        )
        return reply

    async def _scored(self, outputs: RewardOutputs) -> str:
        try:
            scores = Scores.model_validate_json(await self._workshop.blobs.get(outputs.scores))
        except (MissingBlob, ValidationError) as error:
            raise CheckFailed(f"its scores cannot be read from the store: {error}") from None
        expect(
            [SampleId(score.row_uid, score.sample) for score in scores.scores] == self._ids,
            "its scores are not those of the rows and samples that were asked for, sorted by them",
        )
        rewards = [score.reward for score in scores.scores]
        expect(all(map(math.isfinite, rewards)), "a reward is not finite")
        expect(outputs.num_scored == len(rewards), f"num_scored is {outputs.num_scored} of {len(rewards)}")
        mean = sum(rewards) / len(rewards)
        expect(math.isclose(outputs.mean_reward, mean), f"mean_reward is {outputs.mean_reward}, and they have {mean}")
        return f"{len(rewards)} completions, mean reward {mean:g}"

    async def _sampled(self, call: StageCall[Any], reply: StageReply[Any]) -> str:
        assert call.policy is not None
        digest = call.policy.digest
        expect(reply.served.weights_digest == digest, "it served other weights than those that the call names")
        stored = await self._workshop.store.work.samples(call.key.batch, self._ids)
        expect(len(stored) == len(self._ids), f"{len(stored)} of {len(self._ids)} completions are in the store")
        expect(reply.outputs.num_completions == len(stored), f"num_completions is {reply.outputs.num_completions}")
        for id, data in stored.items():
            try:
                completion = decode_completion(data)
            except DamagedCompletion as error:
                raise CheckFailed(f"completion {id} is damaged: {error}") from None
            made_by = (completion.policy_version, completion.weights_digest)
            expect(made_by == (0, digest), f"completion {id} carries version and digest {made_by}")
            expect(
                0 < len(completion.token_ids) <= MAX_TOKENS, f"completion {id} has {len(completion.token_ids)} tokens"
            )
            expect(
                np.isfinite(completion.rollout_logprobs).all() and (completion.rollout_logprobs <= 0).all(),
                f"completion {id} has logprobs that are none",
            )
        return f"{len(stored)} completions, {reply.outputs.num_tokens} tokens"
