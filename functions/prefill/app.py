"""The prefill stage: PROMPTS → PREFIX KV of the distinct ones, as handles in the store."""

from collections.abc import Sequence
from typing import ClassVar

from functions.prefill.policy_decoder import PolicyDecoder
from functions.prefill.prefilling import Prefilling
from functions.prefill.rounds import plan_rounds
from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput
from shared.contracts.prefill import PrefillInputs, PrefillOutputs
from shared.contracts.prompt import Prompt
from shared.contracts.stage import Stage
from shared.inference.prefix_scope import prefix_scope
from shared.service.handler import CallContext, Outcome
from shared.service.model_paths import checked_model
from shared.service.prompts import read_prompts
from shared.service.settings import FunctionSettings


class PrefillHandler:
    """Computes prefix KV with the policy that a call names."""

    stage: ClassVar[Stage] = Stage.PREFILL
    exclusive: ClassVar[bool] = True
    inputs = PrefillInputs
    outputs = PrefillOutputs

    def __init__(self, settings: FunctionSettings) -> None:
        self._settings = settings
        self._policy_decoder = PolicyDecoder()

    async def handle(self, call: StageCall[PrefillInputs], context: CallContext) -> Outcome[PrefillOutputs]:
        """Compute and store, as far as the deadline allows. Raises ``InvalidInput``, ``MissingBlob``, ``Cancelled``."""
        if call.policy is None:
            raise InvalidInput("policy: prefix KV needs the policy version to compute it with")
        model = checked_model(call.policy.model, self._settings)
        prompts = selected(await read_prompts(call.inputs.prompts, context), call.inputs.row_uids)
        decoder = await self._policy_decoder.ready(call.policy, model, context, threads=call.threads)
        token_ids = [prompt.token_ids for prompt in prompts]
        prefilling = Prefilling(
            run=call.key.run,
            scope=await context.compute(prefix_scope, call.policy, model, decoder.layout),
            plan=await context.compute(plan_rounds, token_ids, call.inputs.max_num_prefixes),
            decoder=decoder,
            context=context,
            threads=call.threads,
        )
        outputs = await prefilling.work(call.inputs.first_round)
        return Outcome(
            outputs=outputs,
            status="done" if outputs.next_round is None else "continue",
            policy_version=call.policy.version,
            weights_digest=call.policy.digest,
        )

    async def close(self) -> None:
        """Nothing is held that the process's end does not free."""


def selected(prompts: Sequence[Prompt], row_uids: Sequence[str] | None) -> list[Prompt]:
    """The prompts of these rows; all for ``None``. Raises ``InvalidInput`` for a row that the batch has not."""
    if row_uids is None:
        return list(prompts)
    by_row = {prompt.row_uid: prompt for prompt in prompts}
    if missing := [row for row in row_uids if row not in by_row]:
        raise InvalidInput(f"row_uids: {missing[0]} is no row of the batch's prompts")
    return [by_row[row] for row in row_uids]
