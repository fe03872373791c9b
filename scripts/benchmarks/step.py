"""How long one whole synchronous step takes, through real functions, and where its time goes.

Without ``--model``: steps of the demo. With it: one GRPO step on a model of the user's, with the flags and meaning of a
trainer's own benchmark: so many prompts of so many tokens, so many completions of exactly so many tokens, no KL term,
one update per step.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from scripts.local_stack import REPOSITORY, local_stack
from shared.modeling.tokenizer import Tokenizer

DEMO = REPOSITORY / "scripts" / "demo" / "addition.yaml"
REWARD = REPOSITORY / "scripts" / "benchmarks" / "digits_reward.py"
STAGES = ("rollout", "reward", "learner")
POLL_S = 0.2


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench step", description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="Hugging Face folder; without it the demo is measured")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8, help="completions per prompt")
    parser.add_argument("--prompt-len", type=int, default=256, help="tokens per prompt")
    parser.add_argument("--response-len", type=int, default=64, help="tokens per completion, exactly")
    parser.add_argument("--steps", type=int, default=5, help="measured steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--threads", type=int, help="compute threads; the machine's cores unless given")
    parser.add_argument("--actors", type=int, help="rollout replicas; chosen by the plan unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="rlhfless-bench-") as folder:
        config = model_config(asked, Path(folder)) if asked.model else demo_config(asked)
        roots = [str(REPOSITORY), folder, *([str(asked.model.resolve())] if asked.model else [])]
        with local_stack(Path(folder) / "state", {"RLHFLESS_ROOTS": ":".join(roots)}) as url:
            history = run_to_end(url, config)
    result = measure(history, asked, num_samples=config["data"]["train_batch_size"] * config["rollout"]["n"])
    show(result)
    if asked.json:
        print(json.dumps(result))


def demo_config(asked: argparse.Namespace) -> dict[str, Any]:
    """The demo's config, cut to the steps asked for, without evaluation."""
    config: dict[str, Any] = yaml.safe_load(DEMO.read_text())
    for key in ("train_files", "val_files"):
        config["data"][key] = str(DEMO.parent / config["data"][key])
    config["model"]["path"] = str(DEMO.parent / config["model"]["path"])
    del config["data"]["val_files"], config["rollout"]["val_kwargs"]
    # However few the steps are, the learning rate changes nothing of their time.
    config["actor"]["optim"]["lr_warmup_steps"] = 0
    config["trainer"]["total_training_steps"] = asked.steps + asked.warmup
    config["platform"] = {"threads": asked.threads}
    config["rollout"]["num_actors"] = asked.actors
    return config


def model_config(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One GRPO step on the user's model, with made prompts of the asked length."""
    rows = folder / "prompts.jsonl"
    num_rows = asked.prompts * (asked.steps + asked.warmup)
    rows.write_text("".join(json.dumps(row) + "\n" for row in made_rows(asked, num_rows)))
    return {
        "model": {"path": str(asked.model.resolve())},
        "data": {
            "train_files": str(rows),
            "train_batch_size": asked.prompts,
            # Text made to have so many tokens may have one or two more when it is read again.
            "max_prompt_length": asked.prompt_len + 16,
            "max_response_length": asked.response_len,
        },
        "actor": {"optim": {"lr": 1e-5}},
        "rollout": {"n": asked.group, "ignore_eos": True, "num_actors": asked.actors},
        "reward": {"custom_reward_function": {"path": str(REWARD), "name": "reward"}},
        "trainer": {"total_training_steps": asked.steps + asked.warmup, "seed": asked.seed},
        "platform": {"threads": asked.threads},
    }


def made_rows(asked: argparse.Namespace, num_rows: int) -> list[dict[str, str]]:
    """Additions, filled up from the left with worked examples to the asked number of tokens."""
    tokenizer, rng = Tokenizer.load(asked.model), random.Random(asked.seed)
    rows = []
    for _ in range(num_rows):
        first, second = rng.randrange(100), rng.randrange(100)
        text = f"{first} + {second} ="
        while len(tokenizer.encode(text)) < asked.prompt_len:
            one, two = rng.randrange(100), rng.randrange(100)
            text = f"{one} + {two} = {one + two}\n{text}"
        text = tokenizer.decode(tokenizer.encode(text)[-asked.prompt_len :])
        rows.append({"prompt": text, "answer": str(first + second)})
    return rows


def run_to_end(url: str, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Start the run and wait for it; its history. Raises ``SystemExit`` if it fails."""
    with httpx.Client(base_url=url, timeout=60.0) as client:
        reply = client.post("/v1/runs", json={"config": config})
        if reply.status_code >= 400:
            raise SystemExit(f"the run was refused: {reply.text}")
        run = reply.json()["id"]
        while True:
            state = client.get(f"/v1/runs/{run}").json()
            if state["state"] == "succeeded":
                history: list[dict[str, Any]] = client.get(f"/v1/runs/{run}/metrics").json()["history"]
                return history
            if state["state"] not in ("queued", "running"):
                raise SystemExit(f"the run has {state['state']}: {state}")
            time.sleep(POLL_S)


def measure(history: list[dict[str, Any]], asked: argparse.Namespace, *, num_samples: int) -> dict[str, Any]:
    """The figures: from the end of one step to the end of the next, so that nothing between steps is left out."""
    steps = [line for line in history if line["kind"] == "step"]
    ends = [line["time"] for line in steps]
    measured = steps[asked.warmup :]
    seconds = [end - before for before, end in zip(ends[asked.warmup - 1 :], ends[asked.warmup :], strict=False)]
    median = statistics.median(seconds)

    def of(name: str) -> float:
        return statistics.median(line["metrics"].get(name, 0.0) for line in measured)

    compute = {stage: of(f"timing_s/compute/{stage}") for stage in STAGES}
    plumbing = statistics.median(
        whole - sum(line["metrics"].get(f"timing_s/compute/{stage}", 0.0) for stage in STAGES)
        for whole, line in zip(seconds, measured, strict=True)
    )
    return {
        "what": "rlhfless",
        "threads": asked.threads,
        "num_actors": of("schedule/num_actors"),
        "num_samples": num_samples,
        "steps": len(measured),
        "s_per_step_median": round(median, 4),
        "s_per_step_min": round(min(seconds), 4),
        "s_per_step_max": round(max(seconds), 4),
        "samples_per_s": round(num_samples / median, 2),
        "stage_s": {name: round(of(f"timing_s/{key}"), 4) for name, key in STAGE_TIMES.items()},
        "compute_s": {stage: round(seconds, 4) for stage, seconds in compute.items()},
        "between_steps_s": round(median - of("timing_s/step"), 4),
        "plumbing_s": round(plumbing, 4),
        "plumbing_share": round(plumbing / median, 4),
        "mean_prompt_len": of("prompt_length/mean"),
        "mean_response_len": of("response_length/mean"),
    }


STAGE_TIMES = {"rollout": "gen", "reward": "reward", "learner": "update_actor"}


def show(result: dict[str, Any]) -> None:
    """The figures for a person."""
    print(f"{result['s_per_step_median']:.3f} s per step, {result['samples_per_s']:.1f} samples/s")
    print(f"{'stage':<10}{'seconds':>10}{'compute':>10}{'plumbing':>10}")
    for stage in STAGES:
        total, compute = result["stage_s"][stage], result["compute_s"][stage]
        print(f"{stage:<10}{total:>10.3f}{compute:>10.3f}{total - compute:>10.3f}")
    print(f"{'between':<10}{result['between_steps_s']:>10.3f}{'':>10}{result['between_steps_s']:>10.3f}")
    print(f"plumbing {result['plumbing_s'] * 1000:.0f} ms, {100 * result['plumbing_share']:.1f} % of the step")


if __name__ == "__main__":
    main()
