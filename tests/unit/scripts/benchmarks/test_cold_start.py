"""The cold start's figures: phases that follow each other and add up."""

from pathlib import Path

import pytest

from controller.platforms.base import ReplicaLife
from scripts.benchmarks.cold_start import PHASES, Case, phases, summary
from shared.contracts.call import CallKey, ServedBy, StageReply, Timings
from shared.contracts.ids import InstanceId
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.rollout import RolloutOutputs
from shared.contracts.stage import Purpose, Stage

LIFE = ReplicaLife(
    instance=InstanceId("rollout-00001-a"),
    function="rollout",
    stages=(Stage.ROLLOUT,),
    revision="rollout-00001",
    num_cpus=1.0,
    num_gpus=0,
    scheduled_at=100.0,
    started_at=100.25,
    ready_at=101.0,
)
REPLY = StageReply[RolloutOutputs](
    key=CallKey(run="run", purpose=Purpose.TRAIN, step=0, stage=Stage.ROLLOUT),
    outputs=RolloutOutputs(num_completions=1, num_tokens=1),
    served=ServedBy(instance="rollout-00001-a", revision="rollout-00001", started_at=100.2, ready_at=100.75),
    timings=Timings(started_at=101.5, ended_at=109.0, load_s=4.0, compute_s=2.0),
)
CASE = Case(
    name="demo",
    folder=Path("/models/demo"),
    policy=PolicyRef(
        version=0,
        model=ModelRef(path="/models/demo"),
        weights=BlobRef(id="run/000000/w", num_bytes=1, sha256="0" * 64),
    ),
    weights="trained",
    num_parameters=7,
    vocab_size=18,
)


def test_the_phases_follow_each_other() -> None:
    milliseconds = phases(100.0, 109.5, LIFE, REPLY)
    assert milliseconds == {
        "ms": 9500.0,
        "fork": 250.0,
        "app": 500.0,
        "ready": 250.0,
        "queue": 500.0,
        "load": 4000.0,
        "compute": 2000.0,
        "reply": 2000.0,
    }
    assert sum(milliseconds[name] for name in PHASES) == milliseconds["ms"]


def test_a_case_is_told_by_its_medians() -> None:
    samples = [dict.fromkeys(("ms", *PHASES), value) for value in (1.0, 9.0, 2.0)]
    told = summary(CASE, samples)
    assert (told["ms"], told["ms_min"], told["ms_max"], told["starts"]) == (2.0, 1.0, 9.0, 3)
    assert told["load_ms"] == pytest.approx(2.0)
    assert (told["name"], told["weights"], told["dtype"]) == ("demo", "trained", "float32")
