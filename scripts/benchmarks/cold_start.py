"""How long the first token takes from zero replicas, through the local platform, a real Redis and the real rollout.

A call asks for one token of one prompt while no replica runs; a sample is the time until its answer. The fork server is
warm, as it is whenever a controller has been up for some seconds, and the weights are where a run keeps them: a blob
that the policy names. Each phase begins where the one before it ends:

    fork     the request is there → the platform has a process for it
    app      → the function's application is made: what is imported after the fork, and the application itself
    ready    → the process listens, and the readiness probe has seen it
    queue    → the call is taken: proxy, contract, claim
    load     reading the prompt and the weights: blob, digest, model, parameters
    compute  prefill and the first token
    reply    the rest: leasing the work, storing the completion, committing and sending the reply
"""

import argparse
import asyncio
import contextlib
import gc
import json
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from controller.platforms.base import ReplicaLife
from controller.platforms.local.local_settings import ensure_token, local_settings
from controller.platforms.local.platform import LocalPlatform
from controller.platforms.local.redis_address import redis_address
from controller.runs.stage_client import StageClient
from controller.settings import ControllerSettings
from scripts.local_stack import REPOSITORY
from shared.contracts.call import BatchKey, CallKey, StageReply
from shared.contracts.policy import ModelRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.rollout import RolloutInputs, RolloutOutputs, Sampling, WorkItem
from shared.contracts.stage import Purpose, Stage
from shared.modeling.loading import load_config, load_model
from shared.modeling.weights import state_dict_to_blob
from shared.store.base import Store
from shared.store.blobs import BlobStore
from shared.store.opening import open_blobs, redis_store
from shared.store.redis_connection import RedisConnection

DEMO = REPOSITORY / "scripts" / "demo" / "model"
RUN = "cold-start"
CALL_TIMEOUT_S = 120.0
LOOK_S = 0.02
PHASES = ("fork", "app", "ready", "queue", "load", "compute", "reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model to start with: its folder, its weights as a policy's blob, and where they come from."""

    name: str
    folder: Path
    policy: PolicyRef
    weights: str
    num_parameters: int
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A started platform, the store it shares with its functions, and who calls them."""

    platform: LocalPlatform
    store: Store
    blobs: BlobStore
    client: StageClient


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench cold-start", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--smollm2", type=existing_folder, metavar="DIR", help="SmolLM2-135M's folder; random weights without it"
    )
    parser.add_argument("--case", choices=("demo", "smollm2-135m"), help="only this one")
    parser.add_argument("--repeat", type=int, default=5, help="measured starts of each case")
    parser.add_argument("--warmup", type=int, default=1, help="starts before them")
    parser.add_argument("--prompt-len", type=int, default=32, help="tokens of the prompt")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="compute threads of the call")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    asked = parser.parse_args()
    if asked.repeat < 1 or asked.warmup < 1:
        # The first call of all waits for the fork server's imports, and belongs to no figure.
        parser.error("--repeat and --warmup are at least 1")
    return asked


def existing_folder(text: str) -> Path:
    """A folder that the command line names."""
    path = Path(text).resolve()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path}")
    return path


def main() -> None:
    """Measure and print."""
    asked = arguments()
    result = asyncio.run(measure(asked))
    show(result)
    if asked.json:
        print(json.dumps(result))


async def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """All cases, one after another."""
    names = [asked.case] if asked.case else ["demo", "smollm2-135m"]
    cases = []
    with tempfile.TemporaryDirectory(prefix="rlhfless-bench-") as folder:
        async with started(Path(folder), asked.smollm2) as stack:
            for name in names:
                case = await prepare(name, asked.smollm2, Path(folder), stack.blobs)
                samples = [await cold_call(stack, case, step, asked) for step in range(asked.warmup + asked.repeat)]
                cases.append(summary(case, samples[asked.warmup :]))
    return {"what": "rlhfless", "threads": asked.threads, "prompt_len": asked.prompt_len, "cases": cases}


@contextlib.asynccontextmanager
async def started(folder: Path, model: Path | None) -> AsyncIterator[Stack]:
    """The stack on a state folder, composed as the controller does it, with a fork server that is warm."""
    roots = [REPOSITORY, folder, *([model] if model else [])]
    settings = ControllerSettings.from_environment(
        {"RLHFLESS_STATE_DIR": str(folder / "state"), "RLHFLESS_ROOTS": ":".join(map(str, roots))}
    )
    settings.state_dir.mkdir()
    token_file = settings.state_dir / "token"
    token = ensure_token(token_file)
    async with contextlib.AsyncExitStack() as stack:
        address = await stack.enter_async_context(redis_address(settings))
        redis = RedisConnection(address.url, password=address.password)
        stack.push_async_callback(redis.close)
        platform = LocalPlatform(local_settings(settings, address, token_file))
        await stack.enter_async_context(platform)

        async def notify(line: str) -> None:
            raise SystemExit(f"a call failed: {line}; the figures would not be of one cold start")

        yield Stack(
            platform=platform,
            store=redis_store(redis),
            blobs=open_blobs(settings.blob_url, redis, budget_bytes=settings.blob_budget_bytes),
            client=StageClient(platform, token=token, fence=0, timeout_s=CALL_TIMEOUT_S, notify=notify, trace_id=RUN),
        )


async def prepare(name: str, smollm2: Path | None, folder: Path, blobs: BlobStore) -> Case:
    """The case's model folder, and its weights stored as the learner publishes them: float32."""
    if name == "demo":
        path, weights, model = DEMO, "trained", load_model(DEMO)
    elif smollm2 is not None:
        path, weights, model = smollm2, str(smollm2), load_model(smollm2)
    else:
        path, weights, model = folder / name, "random", random_smollm2()
        model.config.save_pretrained(path)
    num_parameters = model.num_parameters()
    ref = await blobs.put(RUN, 0, f"{name}-policy", state_dict_to_blob(model))
    del model
    gc.collect()
    return Case(
        name=name,
        folder=path,
        policy=PolicyRef(version=0, model=ModelRef(path=str(path)), weights=ref),
        weights=weights,
        num_parameters=num_parameters,
        vocab_size=load_config(path).vocab_size,
    )


def random_smollm2() -> LlamaForCausalLM:
    """A model of SmolLM2-135M's shape (its config.json on the hub) with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config)


async def cold_call(stack: Stack, case: Case, step: int, asked: argparse.Namespace) -> dict[str, float]:
    """One token of one prompt, asked for while no replica runs: milliseconds in all and by phase."""
    await until_none_runs(stack.platform)
    rng = random.Random(step)
    token_ids = tuple(rng.randrange(2, case.vocab_size) for _ in range(asked.prompt_len))
    prompts = PromptBatch(prompts=(Prompt(row_uid="row", token_ids=token_ids, text="row"),))
    batch = BatchKey(run=f"{RUN}-{case.name}", purpose=Purpose.TRAIN, step=step)
    await stack.store.work.put_items(batch, fence=0, assigned=[], offered=[WorkItem(row_uid="row", samples=(0,))])
    inputs = RolloutInputs(
        prompts=await stack.blobs.put(batch.run, step, "prompts", prompts.model_dump_json().encode()),
        num_samples=1,
        sampling=Sampling(temperature=1.0, max_tokens=1, eos_token_ids=(1,)),
        run_seed=step,
        max_num_sequences=1,
    )
    key = CallKey(**batch.model_dump(), stage=Stage.ROLLOUT)
    sent_at = time.time()
    reply = await stack.client.call(key, inputs, RolloutOutputs, policy=case.policy, threads=asked.threads)
    received_at = time.time()
    if reply.outputs.num_tokens != 1:
        raise SystemExit(f"asked for one token, and got {reply.outputs.num_tokens}")
    [life] = [life for life in await stack.platform.replicas() if life.instance == reply.served.instance]
    return phases(sent_at, received_at, life, reply)


async def until_none_runs(platform: LocalPlatform) -> None:
    """Free the rollout's replicas, and wait until the last one has ended."""
    await platform.release(Stage.ROLLOUT)
    while any(life.ended_at is None for life in await platform.replicas()):
        await platform.sleep(LOOK_S)


def phases(
    sent_at: float, received_at: float, life: ReplicaLife, reply: StageReply[RolloutOutputs]
) -> dict[str, float]:
    """Milliseconds from the request to its answer, in all and by phase; they add up. All clocks are this machine's."""
    assert life.started_at is not None
    assert life.ready_at is not None
    timings = reply.timings
    moments = (sent_at, life.started_at, reply.served.ready_at, life.ready_at, timings.started_at)
    seconds = [later - earlier for earlier, later in pairwise(moments)]
    rest = received_at - timings.started_at - timings.load_s - timings.compute_s
    return {
        name: 1000 * value
        for name, value in zip(
            ("ms", *PHASES), (received_at - sent_at, *seconds, timings.load_s, timings.compute_s, rest), strict=True
        )
    }


def summary(case: Case, samples: list[dict[str, float]]) -> dict[str, Any]:
    """The case's medians, and its slowest and fastest start."""
    middle = {name: round(statistics.median(sample[name] for sample in samples), 1) for name in samples[0]}
    return {
        "name": case.name,
        "ms": middle["ms"],
        "ms_min": round(min(sample["ms"] for sample in samples), 1),
        "ms_max": round(max(sample["ms"] for sample in samples), 1),
        **{f"{name}_ms": middle[name] for name in PHASES},
        "starts": len(samples),
        "weights": case.weights,
        "dtype": "float32",
        "num_parameters": case.num_parameters,
    }


def show(result: dict[str, Any]) -> None:
    """The figures for a person."""
    print(f"{'milliseconds':<16}{'total':>9}" + "".join(f"{name:>9}" for name in PHASES))
    for case in result["cases"]:
        parts = "".join(f"{case[f'{name}_ms']:>9.1f}" for name in PHASES)
        print(f"{case['name']:<16}{case['ms']:>9.1f}{parts}")


if __name__ == "__main__":
    main()
