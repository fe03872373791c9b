"""One call to a stage: what is retried, for how long, and what is refused."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.platforms.base import FunctionUnknown, FunctionUnreachable, PlatformReply
from controller.platforms.simulated.clock import EPOCH, virtual_now
from controller.platforms.simulated.function_spec import FunctionSpec, ReplicaView
from controller.platforms.simulated.platform import SimulatedPlatform
from controller.runs.errors import ContractBroken, RunLost, StageFailed, StageUnavailable
from controller.runs.stage_client import MAX_ATTEMPTS, StageClient, parse_problem
from shared.contracts.call import CallKey, ServedBy, StageReply, Timings
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.rollout import RolloutOutputs
from shared.contracts.stage import Purpose, Stage
from shared.contracts.wire import Wire
from tests.fakes.scripted import Answer, Scripted, plain, refusal
from tests.fakes.virtual import in_virtual_time

KEY = CallKey(run="the-run", purpose=Purpose.TRAIN, step=3, stage=Stage.ROLLOUT, shard=1)
POLICY = PolicyRef(
    version=3,
    model=ModelRef(path="/models/tiny"),
    weights=BlobRef(id="the-run/000003/weights", num_bytes=1, sha256="a" * 64),
)


class Inputs(Wire):
    """Something to ask for."""

    number: int = 7


class Bench:
    """A client, a platform with one replica, and the calls that reached it."""

    def __init__(self, answers: Sequence[Answer] = (), *, timeout_s: float = 600.0, work_s: float = 1.0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.lines: list[str] = []
        self.scripted = Scripted(self._work, answers)
        self._work_s = work_s
        spec = FunctionSpec(name="rollout", stages=(Stage.ROLLOUT,), cold_start_s=0.0, max_scale=1)
        self.platform = SimulatedPlatform([spec], {Stage.ROLLOUT: self._note})
        self.client = StageClient(
            self.platform, token="secret", fence=5, timeout_s=timeout_s, notify=self._notify, trace_id="trace"
        )

    async def call(self, key: CallKey = KEY, policy: PolicyRef | None = POLICY) -> StageReply[RolloutOutputs]:
        return await self.client.call(key, Inputs(), RolloutOutputs, policy=policy, threads=2)

    async def _notify(self, line: str) -> None:
        self.lines.append(line)

    async def _note(self, path: str, body: bytes, headers: Mapping[str, str], replica: ReplicaView) -> PlatformReply:
        self.bodies.append(json.loads(body) | {"at": virtual_now() - EPOCH, "path": path})
        self.headers.append(headers)
        return await self.scripted(path, body, headers, replica)

    async def _work(self, path: str, body: bytes, headers: Mapping[str, str], replica: ReplicaView) -> PlatformReply:
        began_at = virtual_now()
        await asyncio.sleep(self._work_s)
        call = json.loads(body)
        reply = StageReply[RolloutOutputs](
            key=CallKey.model_validate(call["key"]),
            outputs=RolloutOutputs(num_completions=4, num_tokens=9),
            served=ServedBy(
                instance=replica.instance,
                revision=replica.revision,
                started_at=replica.started_at,
                ready_at=replica.ready_at,
                policy_version=3,
                weights_digest=call["policy"]["weights"]["sha256"] if call["policy"] else None,
            ),
            timings=Timings(started_at=began_at, ended_at=virtual_now(), compute_s=self._work_s, load_s=0.25),
        )
        return PlatformReply(status=200, headers={}, body=reply.model_dump_json().encode())


def changed(**fields: Any) -> Answer:
    """The function's own reply with other fields (``served__instance`` for nested ones)."""

    def change(reply: PlatformReply) -> PlatformReply:
        body = json.loads(reply.body)
        for name, value in fields.items():
            *path, last = name.split("__")
            target = body
            for part in path:
                target = target[part]
            target[last] = value
        return PlatformReply(status=200, headers={}, body=json.dumps(body).encode())

    return change


@in_virtual_time
async def test_a_call_carries_its_key_policy_fence_deadline_and_token() -> None:
    bench = Bench(timeout_s=300)
    reply = await bench.call()
    assert reply.outputs.num_completions == 4
    [body] = bench.bodies
    assert body["key"] == KEY.model_dump(mode="json")
    assert body["policy"] == POLICY.model_dump(mode="json")
    assert body["inputs"] == {"number": 7}
    assert (body["attempt"], body["fence"], body["threads"], body["trace_id"]) == (0, 5, 2, "trace")
    # Absolute, and earlier than the platform's limit by what a queue and a cold start may take.
    assert body["deadline_at"] == EPOCH + 300 - 30
    assert body["path"] == "/v1/rollout"
    assert bench.headers == [{"authorization": "Bearer secret", "content-type": "application/json"}]
    assert bench.lines == []


@in_virtual_time
async def test_an_answered_call_is_recorded_for_the_ledger_once() -> None:
    bench = Bench([plain(502)])
    await bench.call()
    [record] = bench.client.drain_records()
    assert (record.key, record.compute_s, record.load_s) == (KEY, 1.0, 0.25)
    assert record.instance == "rollout-00001-0001"
    assert record.ended_at - record.started_at == pytest.approx(1.0, abs=1e-6)
    assert record.sent_at <= record.started_at
    assert record.received_at == record.ended_at
    assert bench.client.drain_records() == []


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@in_virtual_time
async def test_what_only_a_platform_answers_is_retried(status: int) -> None:
    bench = Bench([plain(status), plain(status)])
    await bench.call()
    assert [body["attempt"] for body in bench.bodies] == [0, 1, 2]
    assert len(bench.lines) == 2
    assert f"{KEY}: attempt 1 of {MAX_ATTEMPTS} failed: HTTP {status} not from the function" in bench.lines[0]


@in_virtual_time
async def test_a_retry_differs_only_in_what_an_attempt_may_differ_in() -> None:
    bench = Bench([plain(502)])
    await bench.call()
    first, second = bench.bodies
    assert second["deadline_at"] > first["deadline_at"]
    for body in (first, second):
        for name in ("attempt", "deadline_at", "at"):
            del body[name]
    assert first == second


@in_virtual_time
async def test_an_error_that_another_attempt_may_mend_is_retried() -> None:
    bench = Bench([refusal(500, "store_unavailable", retryable=True)])
    await bench.call()
    assert len(bench.bodies) == 2


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "unauthenticated"),
        (409, "call_conflict"),
        (410, "missing_blob"),
        (412, "wrong_policy"),
        (422, "invalid_input"),
        (500, "reward_failed"),
        (507, "store_refused"),
    ],
)
@in_virtual_time
async def test_an_error_that_no_attempt_can_mend_fails_at_once_by_its_name(status: int, code: str) -> None:
    bench = Bench([refusal(status, code)])
    with pytest.raises(StageFailed, match=f"rollout: because of {code}") as caught:
        await bench.call()
    assert (caught.value.stage, caught.value.code) == (Stage.ROLLOUT, code)
    assert len(bench.bodies) == 1
    assert bench.client.drain_records() == []


@in_virtual_time
async def test_a_status_without_a_problem_fails_with_what_was_said() -> None:
    bench = Bench([plain(404, "no such route")])
    with pytest.raises(StageFailed, match=r"HTTP 404 no such route \(http_404\)"):
        await bench.call()


@in_virtual_time
async def test_a_stale_fence_means_that_the_run_is_anothers() -> None:
    bench = Bench([refusal(409, "stale_fence")])
    with pytest.raises(RunLost):
        await bench.call()


@in_virtual_time
async def test_attempts_are_bounded_and_wait_longer_each_time() -> None:
    bench = Bench([plain(503)] * 100)
    with pytest.raises(StageUnavailable, match=rf"rollout gave no result in {MAX_ATTEMPTS} attempts: HTTP 503"):
        await bench.call()
    assert [body["attempt"] for body in bench.bodies] == list(range(MAX_ATTEMPTS))
    waits = [later["at"] - earlier["at"] for earlier, later in zip(bench.bodies, bench.bodies[1:], strict=False)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0], abs=1e-5)


@in_virtual_time
async def test_a_busy_key_is_waited_for_without_using_up_attempts() -> None:
    bench = Bench([refusal(425, "call_busy", retryable=True)] * 20)
    await bench.call()
    assert {body["attempt"] for body in bench.bodies} == {0}
    assert len(bench.bodies) == 21
    assert bench.lines == []
    assert bench.bodies[-1]["at"] == pytest.approx(20 * 0.5)


@in_virtual_time
async def test_a_busy_key_is_asked_for_again_when_it_says_so_within_reason() -> None:
    bench = Bench(
        [
            refusal(425, "call_busy", retryable=True, retry_after_s=0.25),
            refusal(425, "call_busy", retryable=True, retry_after_s=60),
        ]
    )
    await bench.call()
    assert [body["at"] for body in bench.bodies] == pytest.approx([0, 0.25, 1.25])


@in_virtual_time
async def test_a_key_that_stays_busy_beyond_any_deadline_is_given_up() -> None:
    bench = Bench([refusal(425, "call_busy", retryable=True)] * 10_000, timeout_s=60)
    with pytest.raises(StageUnavailable, match="no result in 60 s"):
        await bench.call()
    assert virtual_now() - EPOCH == pytest.approx(60, abs=2)


@in_virtual_time
async def test_no_answer_at_all_is_retried() -> None:
    bench = Bench(work_s=10.0)
    call = asyncio.create_task(bench.call())
    await asyncio.sleep(3)
    bench.platform.kill("rollout-00001-0001", answered=False)
    await call
    assert [body["attempt"] for body in bench.bodies] == [0, 1]
    assert "connection reset" in bench.lines[0]


@in_virtual_time
async def test_a_call_that_is_never_answered_is_given_up_after_the_platforms_limit() -> None:
    bench = Bench(timeout_s=40, work_s=1e6)
    with pytest.raises(StageUnavailable, match="no answer within 40 s"):
        await bench.call()
    assert len(bench.bodies) == MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (plain(200, "{"), "outside its contract"),
        (plain(200, "[]"), "outside its contract"),
        (changed(outputs__num_tokens=-1), "outside its contract"),
        (changed(surprise=1), "outside its contract"),
        (changed(key__step=4), "answered for the-run/train/4/"),
        (changed(key__shard=0), "answered for the-run/train/3/0/rollout/main/0/0"),
        (changed(served__weights_digest="b" * 64), "served weights bbbb"),
        (changed(served__weights_digest=None), "served weights None"),
    ],
)
@in_virtual_time
async def test_an_answer_to_another_question_is_never_accepted(answer: Answer, reason: str) -> None:
    bench = Bench([answer])
    with pytest.raises(ContractBroken, match=reason):
        await bench.call()
    assert bench.client.drain_records() == []


@in_virtual_time
async def test_a_call_without_weights_asks_for_no_digest() -> None:
    bench = Bench([changed(served__weights_digest="b" * 64)])
    await bench.call(policy=None)
    assert bench.bodies[0]["policy"] is None


@in_virtual_time
async def test_a_stage_without_a_function_fails_by_name() -> None:
    bench = Bench()
    with pytest.raises(StageFailed, match="function_unknown"):
        await bench.call(KEY.model_copy(update={"stage": Stage.LEARNER}))


@dataclass
class Unreachable:
    """A platform that nothing comes back from, without a reason."""

    errors: list[Exception] = field(default_factory=list)

    def now(self) -> float:
        return virtual_now()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)

    async def invoke(self, *_: object, **__: object) -> PlatformReply:
        raise self.errors.pop(0)


@in_virtual_time
async def test_a_platforms_own_errors_are_told_apart() -> None:
    async def notify(line: str) -> None:
        lines.append(line)

    lines: list[str] = []
    platform = Unreachable([FunctionUnreachable(), FunctionUnknown("gone")])
    client = StageClient(platform, token="t", fence=1, timeout_s=9, notify=notify, trace_id="")  # type: ignore[arg-type]
    with pytest.raises(StageFailed, match="gone"):
        await client.call(KEY, Inputs(), RolloutOutputs, policy=None)
    assert lines == [f"{KEY}: attempt 1 of {MAX_ATTEMPTS} failed: no answer"]


def test_the_words_of_a_platform_become_a_problem() -> None:
    problem = parse_problem(plain(503, "  queue full \n" + "x" * 1000))
    assert problem.code == "http_503"
    assert problem.message.startswith("HTTP 503 queue full")
    assert len(problem.message) < 250
    assert not problem.retryable
    assert parse_problem(plain(502, "")).message == "HTTP 502"
    assert parse_problem(PlatformReply(status=500, headers={}, body=b"\xff\xfe")).code == "http_500"


def test_a_functions_problem_is_read_as_it_is() -> None:
    problem = parse_problem(refusal(425, "call_busy", retryable=True, retry_after_s=2.0))
    assert (problem.code, problem.retryable, problem.retry_after_s) == ("call_busy", True, 2.0)
