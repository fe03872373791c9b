"""An engine at work, on the compute thread: sequences in, bursts of decoding, and what they cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from functions.rollout.clock import Clock
from functions.rollout.decode_log import DecodeLog
from functions.rollout.engine import Engine, EngineStats, FinishedSequence, NextTurn, SamplingParams, SequenceRequest
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import DecodeStretch
from shared.modeling.threads import use_threads

BURST_S = 0.05
"""Longest stretch of decoding between two looks at the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """What a burst of decoding brought."""

    finished: tuple[FinishedSequence, ...]
    first_step_at: float
    """Unix seconds at which the first of its steps was made."""


class Decoding:
    """One call's use of an engine. The counts may be read from the event loop while the compute thread decodes."""

    def __init__(
        self,
        engine: Engine,
        params: SamplingParams,
        prompts: Mapping[str, Prompt],
        next_turn: NextTurn | None,
        *,
        threads: int,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._params = params
        self._prompts = prompts
        self._next_turn = next_turn
        self._threads = threads
        self._clock = clock
        self.log = DecodeLog()
        self.num_steps = 0
        self.num_tokens = 0
        """Sampled in this call."""
        self.prefill_tokens = 0
        self.reused_tokens = 0
        self.prefill_s = 0.0
        self._has_begun = False

    def add(self, requests: Sequence[SequenceRequest]) -> None:
        """Start sequences. Raises ``InvalidInput`` for what the engine cannot sample."""
        use_threads(self._threads)
        if not self._has_begun:
            # What an earlier call left in the engine's counts is not this call's.
            self._engine.stats()
            self._has_begun = True
        self._engine.add(requests, self._params, self._next_turn)

    def burst(self, is_enough: Callable[[int], bool]) -> Burst:
        """Decode until nothing runs, or for a while, or until what has finished ``is_enough``: at least one step."""
        use_threads(self._threads)
        context_tokens = self._look().context_tokens
        finished: list[FinishedSequence] = []
        num_steps = sum_running = sum_context = 0
        first_step_at, prefill_s, began = self._clock.unix(), self.prefill_s, self._clock.elapsed()
        while (num_running := self._engine.num_running) > 0:
            done = self._engine.step()
            num_steps += 1
            sum_running += num_running
            sum_context += context_tokens
            context_tokens += num_running - sum(self._context_tokens(sequence) for sequence in done)
            finished += done
            self.num_steps += 1
            self.num_tokens += num_running
            if num_steps == 1:
                first_step_at = self._clock.unix()
            if self._clock.elapsed() >= began + BURST_S or is_enough(len(finished)):
                break
        seconds = self._clock.elapsed() - began
        self._look()
        if num_steps:
            self.log.add(
                DecodeStretch(
                    num_steps=num_steps,
                    num_sequences=sum_running / num_steps,
                    context_tokens=sum_context / num_steps,
                    # Turns that were inserted are prefill, too.
                    seconds=max(0.0, seconds - (self.prefill_s - prefill_s)),
                )
            )
        return Burst(finished=tuple(finished), first_step_at=first_step_at)

    def _look(self) -> EngineStats:
        stats = self._engine.stats()
        self.prefill_tokens += stats.prefill_tokens
        self.reused_tokens += stats.reused_tokens
        self.prefill_s += stats.prefill_s
        return stats

    def _context_tokens(self, sequence: FinishedSequence) -> int:
        return len(self._prompts[sequence.row_uid].token_ids) + len(sequence.token_ids)
