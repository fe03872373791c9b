"""Tokens per second of the torch engine and of transformers' `generate`: the same random model, prompts and lengths.

Both sample at temperature 1 from the whole vocabulary and ignore EOS. Each repetition runs one after the other, so that
a busy minute of the machine meets both; a case's speedup is the median over its repetitions.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from functions.rollout.engine import SamplingParams, SequenceRequest
from functions.rollout.torch_engine import TorchEngine
from scripts.benchmarks.make_model import VOCAB_SIZE, make_model, make_tokenizer
from shared.modeling.randomness import address_seed
from shared.modeling.threads import use_threads


@dataclass(frozen=True, slots=True)
class Case:
    """What is generated: `group` completions of `completion_len` tokens for each of the prompts."""

    prompts: int
    group: int
    prompt_len: int
    completion_len: int

    @property
    def num_tokens(self) -> int:
        """Sampled in all."""
        return self.prompts * self.group * self.completion_len

    @property
    def name(self) -> str:
        """Prompts × group, prompt / completion tokens."""
        return f"{self.prompts}x{self.group} P{self.prompt_len}/N{self.completion_len}"


CASES = (Case(16, 1, 32, 64), Case(64, 1, 32, 64), Case(8, 8, 256, 64), Case(8, 8, 512, 128))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench generation", description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)), help="which of them, counted from 0")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    asked = arguments()
    model = make_model(make_tokenizer()).eval()
    engine = TorchEngine(deepcopy(model))
    print(f"{'case':<18}{'threads':>8}{'speedup':>9}{'range':>14}{'tokens/s':>10}{'generate':>10}")
    measured = []
    for threads in asked.threads:
        use_threads(threads)
        for case in (CASES[index] for index in asked.cases):
            one = measure(engine, model, case, threads, asked.repeats)
            measured.append(one)
            print(
                f"{case.name:<18}{threads:>8}{one['speedup_vs_generate']:>8.2f}x"
                f"{one['speedup_range'][0]:>8.2f}-{one['speedup_range'][1]:.2f}"
                f"{one['tokens_per_s']:>10.0f}{one['generate_tokens_per_s']:>10.0f}",
                flush=True,
            )
    if asked.json:
        print(json.dumps({"what": "rlhfless", "repeats": asked.repeats, "cases": measured}))


def measure(engine: TorchEngine, model: PreTrainedModel, case: Case, threads: int, repeats: int) -> dict[str, Any]:
    """One case, both ways in turns."""
    torch.manual_seed(0)
    prompts = torch.randint(VOCAB_SIZE, (case.prompts, case.prompt_len))
    ways: tuple[Callable[[int], None], ...] = (
        lambda num_tokens: generate_ours(engine, prompts.tolist(), case.group, num_tokens),
        lambda num_tokens: generate_theirs(model, prompts, case.group, num_tokens),
    )
    for way in ways:
        way(2)
    seconds: list[list[float]] = [[], []]
    for _ in range(repeats):
        for way, measured in zip(ways, seconds, strict=True):
            start = time.perf_counter()
            way(case.completion_len)
            measured.append(time.perf_counter() - start)
    ours, theirs = seconds
    speedups = sorted(their / our for our, their in zip(ours, theirs, strict=True))
    return {
        "name": f"{case.name} {threads}t",
        "threads": threads,
        "speedup_vs_generate": round(median(speedups), 3),
        "speedup_range": [round(speedups[0], 3), round(speedups[-1], 3)],
        "tokens_per_s": round(case.num_tokens / median(ours), 1),
        "generate_tokens_per_s": round(case.num_tokens / median(theirs), 1),
    }


def generate_ours(engine: TorchEngine, prompts: Sequence[Sequence[int]], group: int, num_tokens: int) -> None:
    """By the engine."""
    requests = [
        SequenceRequest(
            row_uid=str(row),
            sample=sample,
            prompt_token_ids=tuple(prompt),
            seed=address_seed(0, "train", 0, 0, str(row), sample),
        )
        for row, prompt in enumerate(prompts)
        for sample in range(group)
    ]
    engine.add(requests, SamplingParams(temperature=1.0, max_tokens=num_tokens, eos_token_ids=()))
    lengths = []
    while engine.num_running:
        lengths += [len(sequence.token_ids) for sequence in engine.step()]
    assert lengths == [num_tokens] * len(requests)


@torch.inference_mode()
def generate_theirs(model: PreTrainedModel, prompts: torch.Tensor, group: int, num_tokens: int) -> None:
    """By transformers, which knows no groups: every prompt as often as it has completions."""
    repeated = prompts.repeat_interleave(group, dim=0)
    whole: Any = model.generate(
        repeated,
        attention_mask=torch.ones_like(repeated),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=num_tokens,
        min_new_tokens=num_tokens,
        pad_token_id=0,
    )
    assert whole.shape == (len(repeated), prompts.shape[1] + num_tokens)


if __name__ == "__main__":
    main()
