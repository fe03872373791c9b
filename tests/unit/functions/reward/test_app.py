"""The reward stage: from a call by reference to scores in the blob store."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from functions.reward.app import RewardHandler
from shared.codec.completions import encode_completion
from shared.contracts.call import BatchKey, CallKey, StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import Cancelled, InvalidInput, MissingBlob, RewardFailed, RewardTimeout
from shared.contracts.policy import ModelRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.reward import FunctionReward, RewardInputs, RuleReward, Scores
from shared.contracts.stage import Purpose, Stage
from shared.service.handler import CallContext
from shared.service.settings import FunctionSettings
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs

BATCH = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=3)
CHARACTERS = "0123456789#+=:? "
VOCABULARY = {character: index for index, character in enumerate(CHARACTERS)}
ROWS = ("row-0", "row-1")
PAUSE = """
import pathlib, time
def pause(data_source, solution_str, ground_truth, extra_info):
    pathlib.Path(__file__).with_name("started").touch()
    time.sleep(3600)
"""


def save_model(folder: Path) -> None:
    """A model folder as far as scoring needs one: a tokenizer of single characters."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text("{}")


class RewardStage:
    """The handler, and a batch to score: two rows with two completions each."""

    def __init__(self, folder: Path) -> None:
        save_model(folder / "model")
        (folder / "token").write_text("a-token-of-enough-characters")
        (folder / "pause.py").write_text(PAUSE)
        self.folder = folder
        self.store = memory_store(lambda: 0.0)
        self.blobs = MemoryBlobs()
        self.handler = RewardHandler(
            FunctionSettings.from_environment(
                {
                    "RLHFLESS_STAGES": "reward",
                    "RLHFLESS_TOKEN_FILE": str(folder / "token"),
                    "RLHFLESS_ROOTS": str(folder),
                }
            )
        )

    def context(self, *, deadline_at: float = 4e9, stop: StopFlag | None = None) -> CallContext:
        return CallContext(
            store=self.store,
            blobs=self.blobs,
            owner="owner",
            instance="reward-1",
            deadline_at=deadline_at,
            stop=stop or StopFlag(),
            watch=Stopwatch(),
            executor=ThreadPoolExecutor(max_workers=1),
        )

    async def have(self, texts: Mapping[tuple[str, int], str]) -> None:
        """Completions in the store."""
        samples = {SampleId(*id): encode_completion(completion(SampleId(*id), text)) for id, text in texts.items()}
        await self.store.work.commit_samples(BATCH, fence=0, samples=samples)

    async def call(self, rows: Sequence[str] = ROWS, **inputs: Any) -> StageCall[RewardInputs]:
        prompts = PromptBatch(
            prompts=tuple(
                Prompt(row_uid=row, token_ids=(1,), text=f"{index}+1=", ground_truth=str(index + 1))
                for index, row in enumerate(ROWS)
            )
        )
        ref = await self.blobs.put("run-1", 3, "prompts", prompts.model_dump_json().encode())
        return StageCall[RewardInputs](
            key=CallKey(**BATCH.model_dump(), stage=Stage.REWARD),
            fence=0,
            deadline_at=4e9,
            inputs=RewardInputs(
                **{
                    "prompts": ref,
                    "row_uids": tuple(rows),
                    "num_samples": 2,
                    "model": ModelRef(path=str(self.folder / "model")),
                    "reward": RuleReward(name="exact_number"),
                    **inputs,
                }
            ),
        )


def completion(id: SampleId, text: str) -> Completion:
    return Completion(
        id=id,
        prompt_num_tokens=1,
        token_ids=np.array([VOCABULARY[character] for character in text], dtype=np.int32),
        rollout_logprobs=np.zeros(len(text), dtype=np.float32),
        processed_logprobs=np.zeros(len(text), dtype=np.float32),
        loss_mask=np.ones(len(text), dtype=np.bool_),
        segments=(0,),
        finish_reason="stop",
        policy_version=3,
        weights_digest="ab" * 32,
        instance="rollout-1",
        started_at=1.0,
        ended_at=2.0,
    )


RIGHT_AND_WRONG = {("row-0", 0): "0+1#1", ("row-0", 1): "#7", ("row-1", 0): "#2", ("row-1", 1): "2"}


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RewardStage]:
    stage = RewardStage(tmp_path)
    yield stage
    await stage.handler.close()


async def test_completions_are_decoded_scored_and_stored_in_order(stage: RewardStage) -> None:
    await stage.have(RIGHT_AND_WRONG)
    context = stage.context()
    outcome = await stage.handler.handle(await stage.call(rows=("row-1", "row-0")), context)
    stored = Scores.model_validate_json(await stage.blobs.get(outcome.outputs.scores))
    assert [(entry.row_uid, entry.sample, entry.reward) for entry in stored.scores] == [
        ("row-0", 0, 1.0),
        ("row-0", 1, 0.0),
        ("row-1", 0, 1.0),
        ("row-1", 1, 0.0),
    ]
    assert outcome.status == "done"
    assert (outcome.outputs.num_scored, outcome.outputs.mean_reward) == (4, 0.5)
    assert outcome.outputs.scores.id.startswith("run-1/000003/train-scores")
    assert context.watch.load_s > 0
    assert context.watch.compute_s > 0
    assert context.watch.store_s > 0


async def test_a_part_of_the_batch_is_scored_by_itself(stage: RewardStage) -> None:
    await stage.have({id: text for id, text in RIGHT_AND_WRONG.items() if id[0] == "row-1"})
    outcome = await stage.handler.handle(await stage.call(rows=("row-1",)), stage.context())
    assert (outcome.outputs.num_scored, outcome.outputs.mean_reward) == (2, 0.5)


async def test_a_missing_completion_is_named(stage: RewardStage) -> None:
    await stage.have({id: text for id, text in RIGHT_AND_WRONG.items() if id != ("row-1", 1)})
    with pytest.raises(InvalidInput, match="row-1:1"):
        await stage.handler.handle(await stage.call(), stage.context())


async def test_a_damaged_completion_is_no_defect(stage: RewardStage) -> None:
    await stage.store.work.commit_samples(BATCH, fence=0, samples={SampleId("row-0", 0): b"not one"})
    with pytest.raises(MissingBlob, match="damaged"):
        await stage.handler.handle(await stage.call(rows=("row-0",), num_samples=1), stage.context())


async def test_a_model_outside_the_roots_is_refused(stage: RewardStage) -> None:
    with pytest.raises(InvalidInput, match="outside the configured roots"):
        await stage.handler.handle(await stage.call(model=ModelRef(path="/etc")), stage.context())


async def test_a_function_of_the_users_scores(stage: RewardStage) -> None:
    (stage.folder / "length.py").write_text(
        "def length(data_source, solution_str, ground_truth, extra_info):\n    return len(solution_str)\n"
    )
    await stage.have(RIGHT_AND_WRONG)
    reward = FunctionReward(path="length.py", name="length")
    outcome = await stage.handler.handle(await stage.call(reward=reward), stage.context())
    assert outcome.outputs.mean_reward == (5 + 2 + 2 + 1) / 4


@pytest.mark.parametrize("on_failure", ["fail", "drop_group"])
async def test_a_function_that_raises_fails_its_call_or_drops_its_group(stage: RewardStage, on_failure: str) -> None:
    (stage.folder / "picky.py").write_text(
        "def picky(data_source, solution_str, ground_truth, extra_info):\n    return 1 / (solution_str != '2')\n"
    )
    await stage.have(RIGHT_AND_WRONG)
    call = await stage.call(reward=FunctionReward(path="picky.py", name="picky"), on_failure=on_failure)
    if on_failure == "fail":
        with pytest.raises(RewardFailed, match=r"row-1.*1\+1="):
            await stage.handler.handle(call, stage.context())
    else:
        outcome = await stage.handler.handle(call, stage.context())
        assert (outcome.outputs.num_scored, outcome.outputs.num_dropped_groups) == (2, 1)
        assert outcome.outputs.mean_reward == 1.0


async def until_started(stage: RewardStage) -> None:
    for _ in range(2000):
        if (stage.folder / "started").exists():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the function was not called")


async def test_a_call_that_is_stopped_does_not_wait_for_the_users_function(stage: RewardStage) -> None:
    await stage.have(RIGHT_AND_WRONG)
    stop = StopFlag()
    call = await stage.call(reward=FunctionReward(path="pause.py", name="pause"), timeout_s=3600)
    scoring = asyncio.create_task(stage.handler.handle(call, stage.context(stop=stop)))
    await until_started(stage)
    stop.set("the caller is gone")
    with pytest.raises(Cancelled, match="the caller is gone"):
        await scoring


async def test_scoring_that_does_not_fit_into_a_call_is_named(stage: RewardStage) -> None:
    await stage.have(RIGHT_AND_WRONG)
    call = await stage.call(reward=FunctionReward(path="pause.py", name="pause"), timeout_s=3600)
    with pytest.raises(RewardTimeout, match="4 completions took longer"):
        await stage.handler.handle(call, stage.context(deadline_at=time.time() + 0.5))


async def test_several_calls_at_once_do_not_disturb_each_other(stage: RewardStage) -> None:
    await stage.have(RIGHT_AND_WRONG)
    calls = [await stage.call(rows=(row,)) for row in ROWS * 2]
    outcomes = await asyncio.gather(*(stage.handler.handle(call, stage.context()) for call in calls))
    assert [outcome.outputs.mean_reward for outcome in outcomes] == [0.5] * 4
