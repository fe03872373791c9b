"""Requests to functions, by host and by path."""

import pytest

from controller.platforms.local.routing import find_route

FUNCTIONS = {"rollout": 1, "reward": 2, "old-rollout": 3}


@pytest.mark.parametrize(
    ("host", "target", "expected"),
    [
        ("rollout", b"/v1/rollout?a=1", (1, b"/v1/rollout?a=1")),
        ("Rollout:8080", b"/", (1, b"/")),
        ("reward.default.svc.cluster.local", b"/x", (2, b"/x")),
        ("old-rollout.default.example.org", b"/x", (3, b"/x")),
        ("new-rollout.default.example.org", b"/x", None),
        ("reward", b"/functions/rollout/x", (2, b"/functions/rollout/x")),
        ("127.0.0.1:4000", b"/functions/reward/v1/reward?a=1", (2, b"/v1/reward?a=1")),
        ("localhost", b"/functions/old-rollout/v1", (3, b"/v1")),
        ("localhost", b"/functions/reward", (2, b"/")),
        ("localhost", b"/functions/reward?a=/b", (2, b"/?a=/b")),
        ("localhost", b"/functions/critic/x", None),
        ("localhost", b"/reward", None),
        ("rollouts", b"/", None),
        ("", b"/", None),
    ],
)
def test_route(host: str, target: bytes, expected: tuple[int, bytes] | None) -> None:
    assert find_route(FUNCTIONS, host, target) == expected
