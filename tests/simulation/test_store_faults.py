"""The store may be lost at any single operation of a controller: before it took effect, or after, with its answer."""

from pathlib import Path

import pytest

from shared.contracts.errors import StoreUnavailable
from tests.fakes.gates import gated_store
from tests.fakes.stack import make_stack
from tests.fakes.virtual import in_virtual_time

EVERY = 8
"""Of the operations, one in so many is tried."""


class LoseOne:
    """Loses the n-th operation."""

    def __init__(self, number: int, *, after: bool) -> None:
        self._number = number
        self._after = after
        self.num_seen = 0
        self.lost = ""

    def __call__(self, operation: str, done: bool) -> None:
        if done is not self._after:
            return
        self.num_seen += 1
        if self.num_seen - 1 == self._number:
            self.lost = operation
            raise StoreUnavailable(f"lost at operation {self._number}, {operation}")


@pytest.mark.parametrize("after", [False, True], ids=["not done", "done but not answered"])
@in_virtual_time
async def test_no_lost_operation_of_a_controller_fails_or_changes_a_run(tmp_path: Path, after: bool) -> None:
    digests: dict[str, str] = {}
    number = 0
    while True:
        stack = await make_stack(tmp_path / str(number))
        gate = LoseOne(number, after=after)
        submitter = await stack.start()
        run = await stack.submit(submitter)
        await submitter.kill()
        controller = await stack.start(store=gated_store(stack.store, gate))
        record = await stack.until(run, "failed", "cancelled", "succeeded")
        assert record.state == "succeeded", f"{gate.lost}: {record.info['error']}"
        steps = [line["step"] for line in await stack.store.runs.history(run) if line["kind"] == "step"]
        assert steps == [0, 1, 2], gate.lost
        digests[(await stack.head(run)).policy.digest] = gate.lost
        await controller.stop()
        if not gate.lost:
            break
        number += EVERY
    assert number > 60
    assert len(digests) == 1
