"""Rewards that fail, that leave groups out, and that teach nothing."""

import pytest

from tests.e2e.stack import Stack
from tests.e2e.workspace import Workspace

IN_ORDER = {"data.shuffle": False}
"""The first step has the rows of 0+0 to 3+3."""
DROP = {"reward.on_failure": "drop_group"}


def test_a_function_that_raises_fails_the_run_with_the_prompt(stack: Stack, workspace: Workspace) -> None:
    run, reason = stack.api.fail(workspace.config(IN_ORDER, reward="raises_on_six"))
    assert "row train-000003.e0" in reason
    assert "ValueError: no idea of 6" in reason
    assert "The prompt is '3+3='" in reason
    assert "in each of 3 attempts" in reason
    assert "reward_failed" in reason
    assert stack.api.steps(run) == []


def test_a_function_that_hangs_fails_the_run_with_the_prompt(stack: Stack, workspace: Workspace) -> None:
    limits = {"reward.timeout_s": 0.3, "reward.num_attempts": 2}
    _, reason = stack.api.fail(workspace.config(IN_ORDER | limits, reward="hangs"))
    assert "row train-000000.e0" in reason
    assert "no answer within 0.3 s" in reason
    assert "The prompt is '0+0='" in reason
    assert "in each of 2 attempts" in reason
    assert "reward_timeout" in reason


def test_a_run_that_failed_for_its_reward_resumes_when_the_function_is_mended(
    stack: Stack, workspace: Workspace
) -> None:
    function = workspace.root / "mended.py"
    head = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
    function.write_text(f"{head}    raise ValueError('not yet')\n")
    config = workspace.config({"reward.custom_reward_function.path": str(function)}, reward="compute_score")
    run, reason = stack.api.fail(config)
    assert "not yet" in reason
    function.write_text(f"{head}    return len(solution_str) / 16\n")
    stack.api.request("POST", f"/v1/runs/{run}/resume")
    stack.api.wait(run, "succeeded")
    assert stack.api.steps(run) == [0, 1]


def test_a_group_without_reward_is_left_out_on_request_and_counted(stack: Stack, workspace: Workspace) -> None:
    run = stack.api.succeed(workspace.config(IN_ORDER | DROP | {"rollout.ignore_eos": True}, reward="raises_on_six"))
    first, second = [line["metrics"] for line in stack.api.history(run, "step")]
    assert (first["reward/num_dropped_groups"], second["reward/num_dropped_groups"]) == (1, 0)
    assert first["perf/total_num_tokens"] == 12 * (4 + 16), "three groups are trained, none of them on a made-up 0"
    assert second["perf/total_num_tokens"] == 16 * (4 + 16)


def test_a_step_without_any_group_left_fails_by_name(stack: Stack, workspace: Workspace) -> None:
    run, reason = stack.api.fail(workspace.config(IN_ORDER | DROP, reward="raises"))
    assert "dropped" in reason
    assert "internal_error" not in reason
    assert stack.api.steps(run) == []


def test_equal_rewards_give_advantages_of_exactly_zero_and_the_run_goes_on(stack: Stack, workspace: Workspace) -> None:
    run = stack.api.succeed(workspace.config(reward="constant"))
    lines = stack.api.history(run, "step")
    assert [line["step"] for line in lines] == [0, 1]
    for metrics in (line["metrics"] for line in lines):
        assert [metrics[f"critic/advantages/{name}"] for name in ("min", "mean", "max")] == [0.0, 0.0, 0.0]
        assert metrics["critic/rewards/mean"] == pytest.approx(0.3)
        assert metrics["frac_reward_zero_std"] == 1.0
        assert metrics["actor/grad_norm"] == 0.0
