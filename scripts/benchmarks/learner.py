"""What sharing a group's prompt saves in an update of the policy, against the plain padded pass on the same batch.

Both take the micro-batches that suit them best, of those asked for. Every measurement is a process of its own, so that
peak memory is its own. Tokens are prompt and completion of every row: what the plain pass computes.
"""

import argparse
import json
import os
import subprocess
import sys
from typing import Any

CASES = ((64, 64), (256, 64), (512, 128))
"""Tokens of each prompt and of each completion."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench learner", description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8, help="completions per prompt")
    parser.add_argument("--max-token-len", type=int, nargs="+", default=[2048, 4096, 8192], help="micro-batches to try")
    parser.add_argument("--repeats", type=int, default=3, help="updates of which the fastest counts")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    asked = arguments()
    cases = [measure(asked, prompt_len, response_len) for prompt_len, response_len in CASES]
    print(f"{'case':<10}{'speedup':>9}{'tokens/s':>10}{'plain':>9}{'peak MB':>9}{'plain':>7}")
    for case in cases:
        shared, plain = case["shared"], case["plain"]
        print(
            f"{case['name']:<10}{case['speedup']:>8.2f}x{shared['tokens_per_s']:>10.0f}{plain['tokens_per_s']:>9.0f}"
            f"{shared['peak_mb']:>9.0f}{plain['peak_mb']:>7.0f}"
        )
    if asked.json:
        print(json.dumps({"what": "rlhfless", "threads": asked.threads, "repeats": asked.repeats, "cases": cases}))


def measure(asked: argparse.Namespace, prompt_len: int, response_len: int) -> dict[str, Any]:
    """One case, both ways."""
    num_tokens = asked.prompts * asked.group * (prompt_len + response_len)
    ways: dict[str, list[dict[str, Any]]] = {"shared": [], "plain": []}
    # In turns, so that a busy minute of the machine meets both.
    for max_token_len in asked.max_token_len:
        for way, runs in ways.items():
            run = in_own_process(asked, prompt_len, response_len, max_token_len, plain=way == "plain")
            runs.append({"max_token_len": max_token_len, **run})
    best = {way: min(runs, key=lambda run: run["seconds"]) for way, runs in ways.items()}
    shared, plain = best["shared"], best["plain"]
    return {
        "name": f"P{prompt_len}/N{response_len}",
        "speedup": round(plain["seconds"] / shared["seconds"], 3),
        "grad_norm_gap": abs(shared["grad_norm"] / plain["grad_norm"] - 1),
        **{
            way: {
                "tokens_per_s": round(num_tokens / run["seconds"], 1),
                "peak_mb": round(run["peak_bytes"] / 1e6, 1),
                "seconds": round(run["seconds"], 4),
                "max_token_len": run["max_token_len"],
            }
            for way, run in best.items()
        },
    }


def in_own_process(
    asked: argparse.Namespace, prompt_len: int, response_len: int, max_token_len: int, *, plain: bool
) -> dict[str, Any]:
    """What ``learner_update`` prints. Raises ``CalledProcessError``."""
    numbers = {
        "prompts": asked.prompts,
        "group": asked.group,
        "prompt-len": prompt_len,
        "response-len": response_len,
        "max-token-len": max_token_len,
        "threads": asked.threads,
        "repeats": asked.repeats,
    }
    command = [sys.executable, "-m", "scripts.benchmarks.learner_update", *(["--plain"] if plain else [])]
    command += [part for name, number in numbers.items() for part in (f"--{name}", str(number))]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
