"""A replica's environment variables: who wins, and what nobody gave."""

import pytest

from controller.platforms.local.manifest import ConfigReference, FunctionManifest
from controller.platforms.local.manifest_section import ManifestRefused
from controller.platforms.local.replica_environment import function_environment, replica_environment

MANIFEST = FunctionManifest(
    name="rollout",
    image="a",
    command=("a",),
    source="rollout.yaml",
    env={"REDIS_URL": "redis://redis", "OMP_NUM_THREADS": "4", "STAGE": "rollout"},
    references={
        "PASSWORD": ConfigReference(name="rlhfless/password"),
        "TOKEN": ConfigReference(name="rlhfless/token"),
        "MODE": ConfigReference(name="rlhfless/mode", optional=True),
    },
)


def test_overrides_win_over_the_manifest_and_it_over_the_base() -> None:
    env = function_environment(
        MANIFEST,
        base={"PATH": "/bin", "STAGE": "none", "OMP_NUM_THREADS": "9"},
        overrides={"REDIS_URL": "redis://localhost", "TOKEN": "given"},
        config_values={"rlhfless/password": "secret", "rlhfless/token": "not this"},
    )
    assert env["PATH"] == "/bin"
    assert env["STAGE"] == "rollout"
    assert env["OMP_NUM_THREADS"] == "4"
    assert env["OMP_WAIT_POLICY"] == "PASSIVE"
    assert env["REDIS_URL"] == "redis://localhost"
    assert env["PASSWORD"] == "secret"
    assert env["TOKEN"] == "given"
    assert "MODE" not in env


def test_missing_values_are_named_together() -> None:
    with pytest.raises(
        ManifestRefused, match=r"rollout.yaml: env: no value for PASSWORD \(from rlhfless/password\), TOKEN"
    ):
        function_environment(MANIFEST, base={}, overrides={}, config_values={})


def test_what_the_platform_sets_wins() -> None:
    env = replica_environment(
        {"PORT": "1", "HOSTNAME": "laptop", "A": "b"},
        service="rollout",
        revision="rollout-00002",
        instance="rollout-00002-abc",
        port=20001,
    )
    assert env == {
        "A": "b",
        "K_SERVICE": "rollout",
        "K_CONFIGURATION": "rollout",
        "K_REVISION": "rollout-00002",
        "HOSTNAME": "rollout-00002-abc",
        "PORT": "20001",
    }
