"""One way of making one update, in a process of its own: seconds, peak memory, the norm of its gradient."""

import argparse
import json
import resource
import sys
import time

import numpy as np

from functions.learner import update
from functions.learner.config import LearnerConfig
from functions.learner.rows import TrainRow
from scripts.benchmarks.make_model import VOCAB_SIZE, make_model, make_tokenizer
from shared.modeling.threads import use_threads
from shared.training.optimizer import build_optimizer


def main() -> None:
    """Measure what the command line says, and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    for name in ("prompts", "group", "prompt-len", "response-len", "max-token-len", "threads", "repeats"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asked = parser.parse_args()
    use_threads(asked.threads)
    if asked.plain:
        # All else is the same code: batch, loss, optimizer.
        update.supports_prompt_sharing = lambda model: False
    model = make_model(make_tokenizer()).eval()
    config = LearnerConfig(lr=1e-6, max_token_len=asked.max_token_len)
    optimizer = build_optimizer(model, config)
    rows = made_rows(asked.prompts, asked.group, asked.prompt_len, asked.response_len)
    before = peak_bytes()
    # The first one warms up; its gradient is of the same weights in every process.
    grad_norm = update.update_policy(model, optimizer, rows, config, 0).metrics["actor/grad_norm"]
    seconds = []
    for _ in range(asked.repeats):
        started = time.perf_counter()
        update.update_policy(model, optimizer, rows, config, 0)
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": min(seconds), "peak_bytes": peak_bytes() - before, "grad_norm": grad_norm}))


def made_rows(num_prompts: int, group_size: int, prompt_len: int, response_len: int) -> list[TrainRow]:
    """Groups of random tokens and rewards, all of the same lengths."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, VOCAB_SIZE, prompt_len) for _ in range(num_prompts)]
    return [
        TrainRow(
            row_uid=f"row-{number}",
            sample=sample,
            prompt_token_ids=prompt,
            completion_token_ids=rng.integers(0, VOCAB_SIZE, response_len),
            loss_mask=np.ones(response_len, bool),
            rollout_logprobs=np.full(response_len, -np.log(VOCAB_SIZE)),
            reward=float(rng.normal()),
            finish_reason="stop",
        )
        for number, prompt in enumerate(prompts)
        for sample in range(group_size)
    ]


def peak_bytes() -> int:
    """The most memory that this process has had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main()
