"""Rewards by the tests that a completion's program passes, in the sandbox."""

import math
import secrets
from collections.abc import Mapping

from functions.reward.outcome import Asked, Outcome, Rewarded, Scored
from functions.reward.rules.base import BadGroundTruth
from functions.reward.rules.code import (
    Asserts,
    Calls,
    InputOutput,
    Tests,
    is_same_output,
    is_same_result,
    program_in,
    read_tests,
)
from functions.reward.sandbox.jail import Limits
from functions.reward.sandbox.runner import Sandbox, SandboxUnavailable
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput, RewardFailed
from shared.contracts.reward import CodeParameters, RewardInputs, RuleReward
from shared.service.together import together

_OUTPUT_BYTES = 2**22
# A busy machine gives a process less than a CPU; a program that only waits ends here.
_WALL_FACTOR, _WALL_ADDEND_S = 3.0, 5.0


class CodeRewards:
    """1.0 if a completion's program passes all tests of its row, else 0.0; with ``partial`` the share that it passes.

    What a program does is its own fault: an error, an endless loop, too much memory or output is a test that is not
    passed. A sandbox that cannot isolate is nobody's score: RewardFailed.

    Tests that are sources run in the program's process. A program that sets out to deceive them can; one that only
    ends early, prints "passed" or compares equal to everything by accident does not pass.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._sandbox = Sandbox(environ)

    async def score(self, asked: Asked, inputs: RewardInputs, reward: RuleReward) -> Scored:
        """Outcomes by sample; no row fails by itself. Raises InvalidInput for tests that cannot be read."""
        parameters = reward.parameters if isinstance(reward.parameters, CodeParameters) else CodeParameters()
        tests: dict[str, Tests] = {}
        for prompt, _ in asked:
            if prompt.row_uid not in tests:
                try:
                    tests[prompt.row_uid] = read_tests(prompt.ground_truth)
                except BadGroundTruth as error:
                    raise InvalidInput(f"Row {prompt.row_uid}: {error}", row_uid=prompt.row_uid) from error
        outcomes: dict[SampleId, Outcome] = {}

        async def judge(id_: SampleId, completion: str) -> None:
            share = await self._share_passed(completion, tests[id_.row_uid], parameters)
            outcomes[id_] = Rewarded(reward=share if parameters.partial else math.floor(share))

        try:
            await together(judge(completion.id, completion.text) for _, completion in asked)
        except SandboxUnavailable as missing:
            raise RewardFailed(
                f"The reward rule 'code' runs nothing here: {missing}. Code of a model is not run without "
                "isolation: use another node, kernel or runtime class, or another reward.",
                missing=str(missing),
            ) from missing
        return outcomes, {}

    async def _share_passed(self, completion: str, tests: Tests, parameters: CodeParameters) -> float:
        """Passed tests over all tests."""
        program = program_in(completion)
        if program is None:
            return 0.0
        match tests:
            case InputOutput():
                return await self._by_output(program, tests, parameters)
            case Calls():
                return await self._by_calls(program, tests, parameters)
            case Asserts():
                return await self._by_asserts(program, tests, parameters)

    async def _by_output(self, program: str, tests: InputOutput, parameters: CodeParameters) -> float:
        num_passed = 0
        for given, expected in zip(tests.inputs, tests.outputs, strict=True):
            run = await self._sandbox.run(program, _limits(parameters, 1), wall_s=_wall_s(parameters, 1), given=given)
            if run.exit_code == 0 and is_same_output(run.output.decode(errors="replace"), expected):
                num_passed += 1
            elif not parameters.partial:
                return 0.0
        return num_passed / len(tests.inputs)

    async def _by_calls(self, program: str, tests: Calls, parameters: CodeParameters) -> float:
        num = len(tests.results)
        run = await self._sandbox.run(
            program,
            _limits(parameters, num),
            wall_s=_wall_s(parameters, num),
            requests=[{"call": tests.name, "arguments": arguments} for arguments in tests.arguments],
        )
        num_passed = sum(
            "result" in answer and is_same_result(answer["result"], expected)
            for answer, expected in zip(run.answers, tests.results, strict=False)
        )
        return num_passed / num

    async def _by_asserts(self, program: str, tests: Asserts, parameters: CodeParameters) -> float:
        num = len(tests.sources)
        # A mark that the program cannot know while it runs.
        marks = [secrets.token_hex(16) for _ in tests.sources]
        run = await self._sandbox.run(
            program,
            _limits(parameters, num),
            wall_s=_wall_s(parameters, num),
            requests=[{"test": source, "mark": mark} for source, mark in zip(tests.sources, marks, strict=True)],
        )
        num_passed = sum(bool(answer.get("passed") == mark) for answer, mark in zip(run.answers, marks, strict=False))
        return num_passed / num


def _limits(parameters: CodeParameters, num_tests: int) -> Limits:
    return Limits(
        cpu_s=max(1, math.ceil(parameters.test_timeout_s * num_tests)),
        memory_bytes=parameters.memory_bytes,
        file_bytes=_OUTPUT_BYTES,
    )


def _wall_s(parameters: CodeParameters, num_tests: int) -> float:
    return _WALL_FACTOR * parameters.test_timeout_s * num_tests + _WALL_ADDEND_S
