"""Seconds of a decode step by what runs, fitted as the scheduler fits it: `scripts/bench ablation --profile` takes it.

Each load is decoded for a while: one sequence and many, short prompts and long ones.
"""

from collections.abc import Sequence
from dataclasses import replace

from controller.scheduling.decode_profile import DecodeObservation, DecodeProfile, fit
from functions.rollout.torch_engine.engine import TorchEngine
from scripts.gpu_check.engine_work import add_all, run_out
from scripts.gpu_check.figures import Timer
from scripts.gpu_check.shapes import Work

NUM_STEPS = 32
PRIOR = DecodeProfile(base_s=2e-2, per_sequence_s=2e-5, per_context_token_s=1e-8, prefill_token_s=0.0)


def measure_speed(
    engine: TorchEngine, prompts: Sequence[tuple[int, ...]], work: Work, prefill_s: float, timer: Timer
) -> DecodeProfile:
    """The profile of the engine, which must run nothing; `prefill_s` is what the prompts took."""
    num_steps = min(NUM_STEPS, work.completion_tokens)
    observations = []
    for num_prompts in sorted({1, len(prompts)}):
        for group_size in sorted({1, work.group_size}):
            for prompt_tokens in (work.prompt_tokens // 8, work.prompt_tokens):
                some = [prompt[:prompt_tokens] for prompt in prompts[:num_prompts]]
                add_all(engine, some, replace(work, num_prompts=num_prompts, group_size=group_size), num_steps)
                seconds, _ = timer.run(lambda: run_out(engine))
                num_sequences = num_prompts * group_size
                observations.append(
                    DecodeObservation(
                        num_steps=num_steps,
                        num_sequences=num_sequences,
                        context_tokens=num_sequences * (prompt_tokens + (num_steps - 1) / 2),
                        seconds=seconds,
                    )
                )
    profile = fit(observations, PRIOR)
    return replace(
        profile,
        prefill_token_s=prefill_s / (len(prompts) * work.prompt_tokens),
        kv_bytes_per_token=engine.layout.bytes_per_token,
    )
