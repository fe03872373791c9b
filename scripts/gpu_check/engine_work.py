"""Groups of completions on our engine, through its port: prompts, prefill, decoding to the end."""

from collections.abc import Sequence

import torch

from functions.rollout.engine import FinishedSequence, SamplingParams, SequenceRequest
from functions.rollout.torch_engine.engine import TorchEngine
from scripts.gpu_check.shapes import Shape, Work


def drawn_prompts(shape: Shape, work: Work) -> list[tuple[int, ...]]:
    """Random tokens, the same every time."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(0, shape.vocab_size, (work.num_prompts, work.prompt_tokens), generator=generator)
    return [tuple(prompt) for prompt in drawn.tolist()]


def add_all(engine: TorchEngine, prompts: Sequence[tuple[int, ...]], work: Work, max_tokens: int) -> None:
    """Start every completion of every prompt: the prefill."""
    requests = [
        SequenceRequest(
            row_uid=f"row-{number}", sample=sample, prompt_token_ids=prompt, seed=number * work.group_size + sample
        )
        for number, prompt in enumerate(prompts)
        for sample in range(work.group_size)
    ]
    engine.add(requests, SamplingParams(temperature=1.0, max_tokens=max_tokens, eos_token_ids=()))


def run_out(engine: TorchEngine) -> list[FinishedSequence]:
    """Step until nothing runs."""
    finished: list[FinishedSequence] = []
    while engine.num_running:
        finished += engine.step()
    return finished


def run_engine(
    engine: TorchEngine, prompts: Sequence[tuple[int, ...]], work: Work, max_tokens: int
) -> list[FinishedSequence]:
    """Generate every completion of every prompt."""
    add_all(engine, prompts, work, max_tokens)
    return run_out(engine)
