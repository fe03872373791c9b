"""How fast this replica decodes: made-up sequences of a few numbers and lengths, for a moment.

RLHFless (arXiv 2602.22718, section on actor scaling) profiles with dummy batches before a run. The sequences are the
batch's own prompts, repeated to the length that is asked for, so every token id is one of the model's; they come in
groups of the batch's size, as in a real batch. Nothing is leased, committed or kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from functions.rollout.clock import Clock
from functions.rollout.engine import Engine, SamplingParams, SequenceRequest
from functions.rollout.kv_capacity import kv_capacity_tokens
from shared.contracts.errors import InvalidInput
from shared.contracts.policy import PolicyRef
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import DecodeStretch, RolloutInputs, RolloutOutputs
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext, Outcome

MAX_S = 1.5
"""No batch is begun after so long, nor one that would last longer."""
NUM_STEPS = 4
"""Of each batch; one more comes before, and is not counted: it may set things up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One made-up batch."""

    num_sequences: int
    context_tokens: int
    """Of each sequence."""


def loads(prompts: Sequence[Prompt], inputs: RolloutInputs) -> list[Load]:
    """What is measured, the cheapest first: few and many sequences, as they begin and as they may end. Pure."""
    begin = max(2, max(len(prompt.token_ids) for prompt in prompts))
    # So long at most that the measured steps still fit.
    end = max(begin, begin + inputs.sampling.max_tokens - NUM_STEPS - 1)
    most = inputs.max_num_sequences
    numbers = sorted({1, min(most, inputs.num_samples), max(1, most // 4), most})
    lengths = sorted({begin, (begin + end) // 2, end})
    found = [Load(num_sequences=number, context_tokens=length) for number in numbers for length in lengths]
    return sorted(found, key=lambda load: (load.num_sequences * load.context_tokens, load.num_sequences))


class Profiler:
    """Runs made-up batches on an engine, on the compute thread."""

    def __init__(
        self, engine: Engine, prompts: Sequence[Prompt], inputs: RolloutInputs, *, threads: int, clock: Clock
    ) -> None:
        self._engine = engine
        self._prompts = prompts
        self._inputs = inputs
        self._threads = threads
        self._clock = clock
        self._prefill_tokens = 0
        self._prefill_s = 0.0

    def run(self) -> RolloutOutputs:
        """Measure as many loads as there is time for: one at least. Leaves the engine without sequences."""
        use_threads(self._threads)
        until = self._clock.elapsed() + MAX_S
        stretches: list[DecodeStretch] = []
        for load in loads(self._prompts, self._inputs):
            if stretches and self._clock.elapsed() + self._expected_s(load, stretches[-1]) > until:
                break
            stretches += self._measure(load)
        return RolloutOutputs(
            num_completions=0,
            num_tokens=0,
            decode=tuple(stretches),
            prefill_tokens=self._prefill_tokens,
            prefill_s=self._prefill_s,
            kv_bytes_per_token=self._engine.layout.bytes_per_token,
            kv_capacity_tokens=kv_capacity_tokens(self._engine.layout),
        )

    def _expected_s(self, load: Load, last: DecodeStretch) -> float:
        """Seconds of a load, if a step takes the longer the more sequences are in it."""
        prefill_s = self._prefill_s / max(1, self._prefill_tokens) * load.num_sequences * load.context_tokens
        step_s = last.seconds / last.num_steps * max(1.0, load.num_sequences / last.num_sequences)
        return prefill_s + (NUM_STEPS + 1) * step_s

    def _measure(self, load: Load) -> Iterator[DecodeStretch]:
        params = SamplingParams(temperature=1.0, max_tokens=NUM_STEPS + 2, eos_token_ids=())
        self._engine.stats()
        try:
            self._engine.add(list(self._requests(load)), params)
            self._engine.step()
            stats = self._engine.stats()
            self._prefill_tokens += stats.prefill_tokens
            self._prefill_s += stats.prefill_s
            began = self._clock.elapsed()
            for _ in range(NUM_STEPS):
                self._engine.step()
            seconds = self._clock.elapsed() - began
        except InvalidInput:
            # Longer than the model's context, say; a real batch is refused by name.
            return
        finally:
            self._engine.abort()
        yield DecodeStretch(
            num_steps=NUM_STEPS,
            num_sequences=stats.num_running,
            context_tokens=stats.context_tokens + stats.num_running * (NUM_STEPS - 1) / 2,
            seconds=seconds,
        )

    def _requests(self, load: Load) -> Iterator[SequenceRequest]:
        for number in range(load.num_sequences):
            group, sample = divmod(number, self._inputs.num_samples)
            tokens = self._prompts[group % len(self._prompts)].token_ids
            # Turned by its number, no group begins like another.
            turned = (*tokens[group % len(tokens) :], *tokens[: group % len(tokens)])
            repeated = turned * -(-load.context_tokens // len(turned))
            yield SequenceRequest(
                row_uid=f"profile-{group}",
                sample=sample,
                prompt_token_ids=repeated[: load.context_tokens],
                seed=number,
            )


async def profile(
    inputs: RolloutInputs,
    policy: PolicyRef,
    prompts: Sequence[Prompt],
    engine: Engine,
    context: CallContext,
    *,
    threads: int,
) -> Outcome[RolloutOutputs]:
    """Answer a call of operation ``profile``. Raises ``InvalidInput`` without prompts."""
    if not prompts:
        raise InvalidInput("prompts: a profile takes its token ids from the batch's prompts, and there are none")
    profiler = Profiler(engine, prompts, inputs, threads=threads, clock=Clock())
    with context.watch.measure("compute"):
        outputs = await context.compute(profiler.run)
    return Outcome(outputs=outputs, policy_version=policy.version, weights_digest=policy.digest)
