"""A stage function that first answers what a test has written down, and only then does its work."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from controller.platforms.base import PlatformReply
from controller.platforms.simulated.function_spec import ReplicaView, StageFunction
from shared.contracts.errors import Problem

Answer = PlatformReply | Callable[[PlatformReply], PlatformReply]
"""An answer in the function's place, or what is made of its own."""


class Scripted:
    """Wraps a stage function."""

    def __init__(self, function: StageFunction, answers: Iterable[Answer]) -> None:
        self._function = function
        self._answers = deque(answers)
        self.num_calls = 0

    async def __call__(self, path: str, body: bytes, headers: Mapping[str, str], replica: ReplicaView) -> PlatformReply:
        """The next answer of the script; after its end, the function's."""
        self.num_calls += 1
        answer: Answer | None = self._answers.popleft() if self._answers else None
        if isinstance(answer, PlatformReply):
            return answer
        reply = await self._function(path, body, headers, replica)
        return reply if answer is None else answer(reply)


def plain(status: int, text: str = "not from the function") -> PlatformReply:
    """What a platform answers in a function's place."""
    return PlatformReply(status=status, headers={}, body=text.encode())


def refusal(status: int, code: str, *, retryable: bool = False, retry_after_s: float | None = None) -> PlatformReply:
    """What a function answers for a failed call."""
    problem = Problem(code=code, message=f"because of {code}", retryable=retryable, retry_after_s=retry_after_s)
    return PlatformReply(status=status, headers={}, body=problem.model_dump_json().encode())
