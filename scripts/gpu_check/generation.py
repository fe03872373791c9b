"""Tokens per second of our engine against `generate`, on the same weights and lengths; and that its logprobs are right.

Both sample every completion to its full length at temperature 1 from the whole distribution. Groups share their
prompt; `generate` gets each row's prompt as it stands, as it has no other way.

The engine's logprobs are compared with those of full forward passes over what it generated, in float32 of the same
weights. Rounding to the working precision moves them, for us as for transformers, so the limit is relative: the mean
error may be at most 1.5 times that of transformers' own forward pass in the working precision (or 1e-5, in float32).
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from functions.rollout.engine import FinishedSequence
from functions.rollout.torch_engine.engine import TorchEngine
from scripts.gpu_check.decode_speed import measure_speed
from scripts.gpu_check.engine_work import add_all, drawn_prompts, run_engine, run_out
from scripts.gpu_check.figures import Figures, Timer
from scripts.gpu_check.plan import Section
from scripts.gpu_check.random_model import model_folder, random_model
from scripts.gpu_check.shapes import FULL_WORK, SHAPES, SMALL_WORK, Work
from shared.modeling.logprobs import token_logprobs
from shared.modeling.weights import state_dict_to_blob

WARM_UP_TOKENS = 4
ERROR_RATIO = 1.5
FLOAT32_ERROR = 1e-5
ROWS_AT_ONCE = 8
"""Rows of one full forward pass: their logits are of a large vocabulary."""


def measure(section: Section, figures: Figures) -> None:
    """Generate with both, then compare logprobs."""
    shape, device = SHAPES[section.shape], torch.device(section.device)
    dtype = getattr(torch, section.dtype)
    work, timer = SMALL_WORK if section.is_small else FULL_WORK, Timer(device)
    prompts = drawn_prompts(shape, work)
    with model_folder(shape) as folder:
        model = random_model(folder, dtype, device)
        figures.add(num_parameters=shape.num_parameters, num_sampled_tokens=work.num_completion_tokens)
        finished = measure_engine(folder, model, prompts, work, timer, figures)
        measure_generate(model, prompts, work, timer, figures)
        compare(model, in_float32(folder, model, device), prompts, finished, figures)


def measure_engine(
    folder: Path,
    model: PreTrainedModel,
    prompts: Sequence[tuple[int, ...]],
    work: Work,
    timer: Timer,
    figures: Figures,
) -> list[FinishedSequence]:
    """Time our engine on the model's weights. Returns what it generated."""
    engine = TorchEngine.for_model(folder, model.dtype, model.device)
    engine.load(state_dict_to_blob(model))
    run_engine(engine, prompts, work, WARM_UP_TOKENS)
    timer.reset_peak()
    prefill_s, _ = timer.run(lambda: add_all(engine, prompts, work, work.completion_tokens))
    decode_s, finished = timer.run(lambda: run_out(engine))
    figures.add(
        prefill_s=prefill_s,
        decode_s=decode_s,
        tokens_per_s=work.num_completion_tokens / (prefill_s + decode_s),
        decode_tokens_per_s=work.num_completion_tokens / decode_s,
        peak_bytes=timer.peak_bytes(),
    )
    figures.add(decode_profile=asdict(measure_speed(engine, prompts, work, prefill_s, timer)))
    return finished


def measure_generate(
    model: PreTrainedModel, prompts: Sequence[tuple[int, ...]], work: Work, timer: Timer, figures: Figures
) -> None:
    """Time `generate` on the same prompts, each as often as it has completions."""
    rows = torch.tensor([prompt for prompt in prompts for _ in range(work.group_size)], device=model.device)
    run_generate(model, rows, WARM_UP_TOKENS)
    timer.reset_peak()
    generate_s, _ = timer.run(lambda: run_generate(model, rows, work.completion_tokens))
    figures.add(
        generate_tokens_per_s=work.num_completion_tokens / generate_s,
        generate_peak_bytes=timer.peak_bytes(),
        speedup_vs_generate=generate_s / (figures.figures["prefill_s"] + figures.figures["decode_s"]),
    )


def run_generate(model: PreTrainedModel, rows: Tensor, num_tokens: int) -> None:
    """Sample exactly so many tokens for every row `[B, P]`."""
    config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=num_tokens,
        min_new_tokens=num_tokens,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
    )
    generated = model.generate(rows, attention_mask=torch.ones_like(rows), generation_config=config)
    if generated.shape[1] != rows.shape[1] + num_tokens:
        raise RuntimeError(f"generate made {generated.shape[1] - rows.shape[1]} tokens instead of {num_tokens}")


def in_float32(folder: Path, model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """The same weights in float32; the model itself, where it is in float32 already."""
    if model.dtype == torch.float32:
        return model
    exact = random_model(folder, torch.float32, device)
    with torch.no_grad():
        for copied, parameter in zip(exact.parameters(), model.parameters(), strict=True):
            copied.copy_(parameter)
    return exact


def compare(
    model: PreTrainedModel,
    exact: PreTrainedModel,
    prompts: Sequence[tuple[int, ...]],
    finished: Sequence[FinishedSequence],
    figures: Figures,
) -> None:
    """Errors of the engine's logprobs and of the model's own, against the exact model's."""
    ordered = sorted(finished, key=lambda sequence: (int(sequence.row_uid.removeprefix("row-")), sequence.sample))
    ours = torch.tensor([sequence.logprobs for sequence in ordered])
    prompt_of = [prompts[int(sequence.row_uid.removeprefix("row-"))] for sequence in ordered]
    rows = torch.tensor([prompt + tuple(seq.token_ids) for prompt, seq in zip(prompt_of, ordered, strict=True)])
    exact_logprobs = forward_logprobs(exact, rows, len(prompts[0]))
    error = (ours - exact_logprobs).abs()
    usual = (forward_logprobs(model, rows, len(prompts[0])) - exact_logprobs).abs()
    figures.add(
        logprob_mean_error=error.mean().item(),
        logprob_max_error=error.max().item(),
        transformers_logprob_mean_error=usual.mean().item(),
        transformers_logprob_max_error=usual.max().item(),
    )
    limit = max(ERROR_RATIO * usual.mean().item(), FLOAT32_ERROR)
    figures.check("mean error of the engine's logprobs", error.mean().item(), at_most=limit)


@torch.no_grad()
def forward_logprobs(model: PreTrainedModel, rows: Tensor, prompt_tokens: int) -> Tensor:
    """Logprobs of the tokens after the prompt, `[B, T]` on the CPU, from one full pass over prompt and completion."""
    parts = []
    for start in range(0, rows.shape[0], ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE].to(model.device)
        logits = model(some[:, :-1], use_cache=False, logits_to_keep=some.shape[1] - prompt_tokens).logits
        parts.append(token_logprobs(logits, some[:, prompt_tokens:]).cpu())
    return torch.cat(parts)
