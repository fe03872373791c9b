"""Keys and values that one worker call takes from others, and leaves to them, in place of computing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from functions.rollout import prefix_cache
from functions.rollout.engine import Engine
from functions.rollout.prefix_cache import FetchReport, PrefixCacheParams
from functions.rollout.seats import Waiting
from shared.contracts.completion import SampleId
from shared.contracts.policy import PolicyRef
from shared.inference.prefix_kv import PrefixKv
from shared.service.handler import CallContext


@dataclass(slots=True, kw_only=True)
class Prefixes:
    """One call's traffic with the prefix cache."""

    engine: Engine
    policy: PolicyRef
    context: CallContext
    params: PrefixCacheParams
    are_prefilled: bool
    """Whether prefill stored the prompts' keys and values."""
    fetched: FetchReport = field(default_factory=FetchReport)

    def may_have(self, sequence: Waiting) -> bool:
        """Whether somebody stored keys and values of the sequence."""
        return self.are_prefilled or sequence.has_kv

    async def fetch(self, sequences: Sequence[Waiting]) -> None:
        """Give the engine what somebody stored of these sequences, before they are added."""
        requests = [each.request for each in sequences if self.may_have(each)]
        self.fetched += await prefix_cache.fetch(
            {request.prompt_token_ids + request.generated.token_ids for request in requests},
            self.engine,
            self.policy,
            self.context,
            self.params,
        )

    async def store(self, ids: Sequence[SampleId]) -> bool:
        """Store keys and values of running sequences. True if others find them, all of them."""

        def read() -> list[PrefixKv]:
            return [self.engine.kv_of(id.row_uid, id.sample) for id in ids]

        report = await prefix_cache.store_sequences(
            await self.context.compute(read), self.policy, self.context, self.params
        )
        return bool(ids) and report.num_refused == 0
