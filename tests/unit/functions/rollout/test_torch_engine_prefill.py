"""The prefill plan: every distinct prefix once, and every row filled."""

import pytest

from functions.rollout.torch_engine import prefill
from functions.rollout.torch_engine.prefill import plan_prefill

A, B, C = (1, 2, 3), (4,), (5, 6)


def _filled(passes: list[prefill.PrefillPass]) -> dict[int, tuple[int, ...]]:
    return {
        row: one_pass.prefixes[source]
        for one_pass in passes
        for row, source in zip(one_pass.rows, one_pass.sources, strict=True)
    }


def test_equal_prefixes_are_computed_once() -> None:
    passes = list(plan_prefill([A, A, B, A, B], first_row=10))
    assert [prefix for one_pass in passes for prefix in one_pass.prefixes] == [B, A]
    assert _filled(passes) == {10: A, 11: A, 12: B, 13: A, 14: B}


def test_empty_prefixes_need_no_pass() -> None:
    assert list(plan_prefill([(), ()], first_row=0)) == []
    assert _filled(list(plan_prefill([(), B], first_row=0))) == {1: B}


@pytest.mark.parametrize("budget", [1, 4, 6, 100])
def test_passes_keep_to_the_token_budget(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill, "_PASS_TOKENS", budget)
    passes = list(plan_prefill([A, C, B, (7, 8), A], first_row=0))
    assert _filled(passes) == {0: A, 1: C, 2: B, 3: (7, 8), 4: A}
    for one_pass in passes:
        padded = len(one_pass.prefixes) * max(map(len, one_pass.prefixes))
        assert padded <= budget or len(one_pass.prefixes) == 1
    assert len(passes) == {1: 4, 4: 3, 6: 2, 100: 1}[budget]
