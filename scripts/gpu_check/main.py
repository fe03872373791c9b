"""Measures the torch parts of rlhfless on one large GPU, in a time budget of its own, and writes one JSON file.

    {
      "what": "rlhfless gpu-check", "schema": 1,
      "is_small": false,            true: a tiny model on the CPU, whose figures mean nothing
      "started_at": 0.0,            Unix seconds
      "seconds": 0.0, "budget_s": 460.0,
      "missing": ["pydantic"],      packages that are needed and not installed
      "passed": true,               every section was done and every check passed
      "sections": [
        {"name": "generation-0.5b", "module": "generation", "shape": "0.5b", "device": "cuda", "dtype": "bfloat16",
         "status": "done",          or "failed", "timed out", "left out" (the budget was used up)
         "reason": "", "seconds": 0.0,
         "figures": {...},          by name with unit; what was known when the section ended, however it ended
         "checks": [{"name": "...", "value": 0.0, "at_most": 0.0, "passed": true}]}
      ]
    }

The file is written anew after each section. What the figures of a section mean stands at the head of its module:
machine, generation, learner, publishing, prefix_kv, determinism. Sizes are in shapes.py, bounds in plan.py.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scripts.gpu_check.plan import BUDGET_S, SECTIONS, Section, allowed_s, small_sections
from scripts.gpu_check.section import measure

PACKAGES = ("torch", "transformers", "safetensors", "numpy", "tokenizers", "pydantic", "jinja2", "yaml")
"""What the measured code imports. peft is used where it is there."""
ROOT = str(Path(__file__).parents[2])
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
RUNNING = Callable[[Section, Path, float], dict[str, Any]]


def main(arguments: list[str] | None = None) -> int:
    """Measure every section and write the file. 0 if all of it was done and right."""
    parser = argparse.ArgumentParser(prog="scripts/gpu-check", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--small", action="store_true", help="a tiny model on the CPU, in seconds")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"), help="with --small")
    parser.add_argument("--only", nargs="+", help="names of sections, such as generation-7b")
    asked = parser.parse_args(arguments)
    sections = small_sections(asked.dtype) if asked.small else SECTIONS
    if asked.only:
        unknown = set(asked.only) - {section.name for section in sections}
        if unknown:
            parser.error(f"no sections {sorted(unknown)}: there are {[section.name for section in sections]}")
        sections = tuple(section for section in sections if section.name in asked.only)
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}; put them on PYTHONPATH. What needs them fails.", file=sys.stderr)
    result = run(sections, asked.out, is_small=asked.small, missing=missing)
    print(f"{asked.out}: {'passed' if result['passed'] else 'FAILED'} in {result['seconds']:.0f} s")
    return 0 if result["passed"] else 1


def run(
    sections: tuple[Section, ...], out: Path, *, is_small: bool, missing: list[str], budget_s: float = BUDGET_S
) -> dict[str, Any]:
    """Run the sections one after the other, within the budget. Returns what was written."""
    started_at, started = time.time(), time.monotonic()
    # Tiny sections share this process: starting one takes longer than they do.
    run_one: RUNNING = run_here if is_small else run_apart
    results: list[dict[str, Any]] = []

    def written() -> dict[str, Any]:
        done = len(results) == len(sections) and all(each["status"] == "done" for each in results)
        result = {
            "what": "rlhfless gpu-check",
            "schema": 1,
            "is_small": is_small,
            "started_at": started_at,
            "seconds": time.monotonic() - started,
            "budget_s": budget_s,
            "missing": missing,
            "passed": done and all(check["passed"] for each in results for check in each["checks"]),
            "sections": results,
        }
        partial = out.with_name(f".{out.name}.partial")
        partial.write_text(json.dumps(result, indent=1))
        partial.rename(out)
        return result

    with tempfile.TemporaryDirectory() as folder:
        for section in sections:
            path = Path(folder) / f"{section.name}.json"
            limit_s = allowed_s(section, elapsed_s=time.monotonic() - started, budget_s=budget_s)
            ended = run_one(section, path, limit_s) if limit_s else {"status": "left out", "reason": "no time left"}
            noted = json.loads(path.read_text()) if path.exists() else {"figures": {}, "checks": []}
            results.append({"name": section.name, "seconds": 0.0, **described(section), **ended, **noted})
            print(summary(results[-1]), flush=True)
            written()
    return written()


def run_here(section: Section, path: Path, limit_s: float) -> dict[str, Any]:
    """In this process, without a limit."""
    return measure(section, path)


def run_apart(section: Section, path: Path, limit_s: float) -> dict[str, Any]:
    """In a process of its own, which is killed at the limit."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])}
    if section.module == "determinism":
        environment |= DETERMINISTIC
    command = [sys.executable, "-P", "-m", "scripts.gpu_check.section", json.dumps(asdict(section)), str(path)]
    try:
        process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {"status": "timed out", "reason": f"ended after {limit_s:.0f} s", "seconds": limit_s}
    lines = process.stdout.splitlines()
    if process.returncode or not lines:
        last = "\n".join(process.stderr.splitlines()[-5:])
        return {"status": "failed", "reason": f"exit status {process.returncode}: {last}"}
    ended: dict[str, Any] = json.loads(lines[-1])
    return ended


def described(section: Section) -> dict[str, Any]:
    """What the section was to measure, and on what."""
    return {name: getattr(section, name) for name in ("module", "shape", "device", "dtype")}


def summary(result: dict[str, Any]) -> str:
    """One line of a section: how it ended, and its figures."""
    figures = ", ".join(f"{name} {value:.4g}" for name, value in result["figures"].items() if isinstance(value, float))
    failed = [check["name"] for check in result["checks"] if not check["passed"]]
    problems = f"  FAILED: {', '.join(failed)}" if failed else ""
    reason = f" ({result['reason'].strip().splitlines()[-1]})" if result["reason"] else ""
    return f"{result['name']:<16} {result['status']:<9} {result['seconds']:>6.1f} s{reason}  {figures}{problems}"


if __name__ == "__main__":
    sys.exit(main())
