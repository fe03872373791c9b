"""TRL's GRPOTrainer on the CPU: seconds of a step of 8 prompts x 8 completions, all of the same length.

It runs in the environment of ``scripts/peer-check``, which has TRL, and imports nothing of this project. The first step
is not counted. Prints one JSON object.
"""

import argparse
import json
import logging
import os
import random
import statistics
import time
import warnings
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

NUM_PROMPTS = GROUP_SIZE = 8
STEPS, WARMUP = 4, 1


class StepTimes(TrainerCallback):
    """Seconds of each optimizer step: generation, reward and update together."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began_at = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """A step begins with the generation of its completions."""
        self._began_at = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """The weights are updated."""
        self.seconds.append(time.perf_counter() - self._began_at)


def share_of_even_tokens(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that costs nothing and differs within a group, so that every completion is trained on."""
    return [sum(token % 2 == 0 for token in ids) / len(ids) for ids in completion_ids]


def main() -> None:
    """Train for a few steps and print what one takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt-len", type=int, required=True)
    parser.add_argument("--response-len", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--micro", type=int, required=True, help="completions of a forward and backward pass")
    parser.add_argument("--out", required=True)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    times = StepTimes()
    num_samples = NUM_PROMPTS * GROUP_SIZE
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32),
        reward_funcs=share_of_even_tokens,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict(
            {"prompt": prompts(tokenizer, asked.prompt_len, NUM_PROMPTS * (STEPS + WARMUP))}
        ),
        callbacks=[times],
        args=GRPOConfig(
            output_dir=asked.out,
            use_cpu=True,
            bf16=False,
            beta=0.0,
            num_generations=GROUP_SIZE,
            max_completion_length=asked.response_len,
            generation_kwargs={"min_new_tokens": asked.response_len},
            per_device_train_batch_size=asked.micro,
            gradient_accumulation_steps=num_samples // asked.micro,
            gradient_checkpointing=False,
            max_steps=STEPS + WARMUP,
            learning_rate=1e-5,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
    )
    trainer.train()
    seconds = statistics.median(times.seconds[WARMUP:])
    print(json.dumps({"what": "trl", "s_per_step_median": seconds, "samples_per_s": num_samples / seconds}))


def prompts(tokenizer: Any, length: int, count: int) -> list[str]:
    """Texts that have exactly so many tokens."""
    draw, found = random.Random(0), []
    while len(found) < count:
        text = tokenizer.decode([draw.randrange(len(tokenizer)) for _ in range(length)], skip_special_tokens=True)
        token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        while len(token_ids) < length:
            text += " " + text
            token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        text = tokenizer.decode(token_ids[:length], skip_special_tokens=True)
        if len(tokenizer(text, add_special_tokens=False)["input_ids"]) == length:
            found.append(text)
    return found


if __name__ == "__main__":
    main()
