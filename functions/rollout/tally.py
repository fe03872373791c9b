"""What one worker call has made, as it tells the controller."""

from collections.abc import Sequence
from dataclasses import dataclass

from functions.rollout.decoding import Decoding
from functions.rollout.leased_work import LeasedWork
from functions.rollout.prefix_cache import FetchReport
from shared.contracts.completion import Completion
from shared.contracts.rollout import RolloutOutputs


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of one call."""

    kv_bytes_per_token: int
    kv_capacity_tokens: int
    num_completions: int = 0
    num_tokens: int = 0
    num_turns: int = 0
    num_tool_errors: int = 0
    num_migrated_out: int = 0

    def note(self, completions: Sequence[Completion]) -> None:
        """These are stored."""
        self.num_completions += len(completions)
        self.num_tokens += sum(len(completion.token_ids) for completion in completions)
        self.num_turns += sum(len(completion.segments) for completion in completions)

    def outputs(self, leased: LeasedWork, decoding: Decoding, fetched: FetchReport) -> RolloutOutputs:
        """The summary of the call."""
        return RolloutOutputs(
            num_completions=self.num_completions,
            num_tokens=self.num_tokens,
            num_turns=self.num_turns,
            # Only what is answered has a turn after it.
            num_tool_calls=self.num_turns - self.num_completions,
            num_tool_errors=self.num_tool_errors,
            num_resumed=leased.num_resumed,
            num_migrated_in=leased.num_migrated_in,
            num_migrated_out=self.num_migrated_out,
            decode=decoding.log.stretches(),
            prefill_tokens=decoding.prefill_tokens,
            reused_tokens=decoding.reused_tokens,
            prefill_s=decoding.prefill_s,
            num_prefix_hits=fetched.num_hits,
            num_prefix_misses=fetched.num_misses,
            num_prefix_late=fetched.num_late,
            num_prefix_damaged=fetched.num_damaged,
            prefix_bytes=fetched.fetched_bytes,
            prefix_s=fetched.fetch_s,
            kv_bytes_per_token=self.kv_bytes_per_token,
            kv_capacity_tokens=self.kv_capacity_tokens,
        )
