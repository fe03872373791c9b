"""A function's settings: each bad value is refused by the name of its variable, and no secret is repeated."""

import traceback
from dataclasses import fields
from pathlib import Path

import pytest

from shared.contracts.stage import Stage
from shared.service.settings import GIB, FunctionSettings, SettingsInvalid, process_environment

TOKEN = "hunter2-hunter2-hunter2"
URL = "redis://:hunter2@redis:6379/1"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    token_file = tmp_path / "token"
    token_file.write_text(f"{TOKEN}\n")
    return {"RLHFLESS_STAGES": "reward", "RLHFLESS_TOKEN_FILE": str(token_file)}


def test_defaults(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "machine")
    settings = FunctionSettings.from_environment(environment)
    assert settings.stages == (Stage.REWARD,)
    assert (settings.redis_url, settings.redis_password) == ("redis://localhost:6379/0", None)
    assert (settings.blob_url, settings.blob_budget_bytes) == ("redis://", 4 * GIB)
    assert (settings.prefix_kv.url, settings.prefix_kv.budget_bytes) == ("redis://", GIB)
    assert settings.token == TOKEN
    assert (settings.model_roots, settings.allow_hub) == ((Path("/models"),), False)
    assert settings.reward_allowed_hosts == ()
    assert settings.secrets_folder == Path("/var/run/secrets/rlhfless-rewards")
    assert (settings.num_ranks, settings.deterministic) == (None, False)
    assert (settings.instance, settings.revision) == ("machine", "unrevisioned")
    assert (settings.host, settings.port) == ("0.0.0.0", 8080)


def test_every_variable_is_read(environment: dict[str, str]) -> None:
    settings = FunctionSettings.from_environment(
        environment
        | {
            "RLHFLESS_STAGES": " learner, rollout ,",
            "REDIS_URL": URL,
            "REDIS_PASSWORD": "hunter3",
            "RLHFLESS_BLOB_URL": "file:///blobs",
            "RLHFLESS_BLOB_BUDGET_BYTES": "1000",
            "RLHFLESS_ROOTS": "/a::/b",
            "RLHFLESS_ALLOW_HUB": "1",
            "RLHFLESS_REWARD_ALLOWED_HOSTS": " judge.svc, 10.0.0.0/8,",
            "RLHFLESS_SECRETS_DIR": "/secrets",
            "RLHFLESS_NUM_RANKS": "4",
            "RLHFLESS_DETERMINISTIC": "1",
            "RLHFLESS_NUM_NODES": "1",
            "HOSTNAME": "rollout-00001-x",
            "K_REVISION": "rollout-00001",
            "RLHFLESS_BIND": "127.0.0.1",
            "PORT": "9000",
        }
    )
    assert settings.stages == (Stage.LEARNER, Stage.ROLLOUT)
    assert (settings.redis_url, settings.redis_password) == (URL, "hunter3")
    assert (settings.blob_url, settings.blob_budget_bytes) == ("file:///blobs", 1000)
    assert (settings.model_roots, settings.allow_hub) == ((Path("/a"), Path("/b")), True)
    assert settings.reward_allowed_hosts == ("judge.svc", "10.0.0.0/8")
    assert settings.secrets_folder == Path("/secrets")
    assert (settings.num_ranks, settings.deterministic) == (4, True)
    assert (settings.instance, settings.revision) == ("rollout-00001-x", "rollout-00001")
    assert (settings.host, settings.port) == ("127.0.0.1", 9000)


@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ("RLHFLESS_STAGES", ["", ",", "cook", "reward,cook", "reward,reward", "Reward"]),
        ("RLHFLESS_TOKEN_FILE", ["", "/nowhere/token", "/"]),
        ("RLHFLESS_BLOB_BUDGET_BYTES", ["many", "-1", "0", "1.5", "1e9", "1_000", "٣", " 1", "9" * 5000]),
        ("RLHFLESS_PREFIX_KV_BYTES", ["0", "1e9", "-5", "9" * 30]),
        ("RLHFLESS_ROOTS", ["models", "/a:b", "."]),
        ("RLHFLESS_DETERMINISTIC", ["yes", "2"]),
        ("RLHFLESS_NUM_RANKS", ["0", "-2", "all"]),
        ("RLHFLESS_NUM_NODES", ["2", "0", "two"]),
        ("WORLD_SIZE", ["1", "8"]),
        ("MASTER_ADDR", ["learner-0.learner"]),
        ("RLHFLESS_ALLOW_HUB", ["yes", "true", "2"]),
        ("PORT", ["http", "-1", "0", "65536", "80.0"]),
    ],
)
def test_a_bad_value_is_refused_by_name(environment: dict[str, str], variable: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(SettingsInvalid) as refused:
            FunctionSettings.from_environment(environment | {variable: value})
        assert str(refused.value).startswith(variable), value


@pytest.mark.parametrize("name", ["RLHFLESS_STAGES", "RLHFLESS_TOKEN_FILE"])
def test_what_has_no_default_must_be_set(environment: dict[str, str], name: str) -> None:
    del environment[name]
    with pytest.raises(SettingsInvalid, match=name):
        FunctionSettings.from_environment(environment)


@pytest.mark.parametrize(
    "content", [b"", b"hunter2", b"hunter2 hunter2 hunter2", b"hunter2-hunter2-\xff\xfe", b"\n" * 99]
)
def test_a_bad_token_is_refused_without_repeating_it(environment: dict[str, str], content: bytes) -> None:
    Path(environment["RLHFLESS_TOKEN_FILE"]).write_bytes(content)
    with pytest.raises(SettingsInvalid, match="RLHFLESS_TOKEN_FILE") as refused:
        FunctionSettings.from_environment(environment)
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


def test_no_secret_is_in_the_repr(environment: dict[str, str]) -> None:
    secrets = {"REDIS_URL": URL, "REDIS_PASSWORD": "hunter2", "RLHFLESS_BLOB_URL": "s3://key:hunter2@bucket"}
    settings = FunctionSettings.from_environment(environment | secrets)
    assert "hunter2" not in repr(settings)
    assert {field.name for field in fields(settings) if not field.repr} == {
        "token",
        "redis_url",
        "redis_password",
        "blob_url",
    }


def test_children_get_a_copy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMETHING", "for children")
    copy = dict(process_environment())
    monkeypatch.setenv("SOMETHING", "else")
    assert copy["SOMETHING"] == "for children"
