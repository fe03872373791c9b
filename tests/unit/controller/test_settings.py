"""The controller's settings from its environment."""

from pathlib import Path

import pytest

from controller.settings import (
    REPOSITORY,
    ClusterSettings,
    ControllerSettings,
    MachineSettings,
    SettingsInvalid,
    function_environment,
    read_token_file,
)
from shared.store.directory_blobs import DirectoryBlobs
from shared.store.opening import open_blobs
from shared.store.prefix_kv_settings import PrefixKvSettings
from shared.store.redis_connection import RedisConnection


def settings(**environment: str) -> ControllerSettings:
    return ControllerSettings.from_environment(environment)


def test_an_empty_environment_is_a_stack_of_its_own_in_the_checkout() -> None:
    found = settings()
    assert found.state_dir == REPOSITORY / ".rlhfless"
    assert (found.redis_url, found.redis_password, found.api_token_file) == (None, None, None)
    assert found.roots == (REPOSITORY, found.state_dir)
    assert (found.api_host, found.api_port) == ("127.0.0.1", 8765)
    assert found.manifests == REPOSITORY / "deploy" / "base" / "functions"
    assert not found.allow_hub
    assert found.num_threads >= 1
    assert found.call_timeout_s == 600
    assert found.checkpoint_root == found.state_dir / "checkpoints"
    assert found.dataset_root == found.state_dir / "datasets"
    assert found.max_dataset_bytes == 2**30
    assert found.address_file == found.state_dir / "controller.json"


def test_every_variable_is_read(tmp_path: Path) -> None:
    found = settings(
        RLHFLESS_STATE_DIR=str(tmp_path),
        REDIS_URL="redis://there:6379/1",
        REDIS_PASSWORD="hidden",
        RLHFLESS_BLOB_URL="redis://",
        RLHFLESS_BLOB_BUDGET_BYTES="1000",
        RLHFLESS_PREFIX_KV_URL="redis://",
        RLHFLESS_PREFIX_KV_BYTES="2000",
        REDIS_CACHE_URL="redis://cache/0",
        RLHFLESS_ROOTS=f"/models:{tmp_path}/data::",
        RLHFLESS_ALLOW_HUB="1",
        RLHFLESS_API_HOST="0.0.0.0",
        RLHFLESS_API_PORT="0",
        RLHFLESS_API_TOKEN_FILE="/run/token",
        RLHFLESS_ADMIN_TOKEN_FILE="/run/admin-token",
        RLHFLESS_TOKEN_FILE="/run/function-token",
        RLHFLESS_PLATFORM="knative",
        RLHFLESS_NAMESPACE="training",
        RLHFLESS_INGRESS_URL="http://10.0.0.1:8080",
        KUBECONFIG="/home/me/.kube/config",
        HOSTNAME="controller-0",
        RLHFLESS_MANIFESTS="/manifests",
        RLHFLESS_MAX_DATASET_BYTES="5000",
        RLHFLESS_CALL_TIMEOUT_S="300",
        RLHFLESS_THREADS="3",
        RLHFLESS_CPUS="1.5",
        RLHFLESS_MEMORY_BYTES="2000",
        RLHFLESS_PRETEND_GPUS="4",
        RLHFLESS_GPU_DEVICES="0, GPU-2",
        RLHFLESS_ENVIRONMENTS="vllm=/opt/vllm/bin/python",
        RLHFLESS_REWARD_ALLOWED_HOSTS="judge.example",
        RLHFLESS_NUM_RANKS="2",
        RLHFLESS_CPU_HOUR_USD="0.5",
        RLHFLESS_GPU_HOUR_USD="2",
    )
    assert found == ControllerSettings(
        state_dir=tmp_path,
        redis_url="redis://there:6379/1",
        redis_password="hidden",
        blob_url="redis://",
        blob_budget_bytes=1000,
        prefix_kv=PrefixKvSettings(
            cache_url="redis://cache/0", cache_password="hidden", url="redis://", budget_bytes=2000
        ),
        roots=(Path("/models"), tmp_path / "data"),
        allow_hub=True,
        api_host="0.0.0.0",
        api_port=0,
        api_token_file=Path("/run/token"),
        admin_token_file=Path("/run/admin-token"),
        token_file=Path("/run/function-token"),
        cluster=ClusterSettings(
            kubeconfig=Path("/home/me/.kube/config"),
            namespace="training",
            ingress_url="http://10.0.0.1:8080",
            api_host=None,
            api_port="443",
            holder="controller-0",
        ),
        manifests=Path("/manifests"),
        max_dataset_bytes=5000,
        call_timeout_s=300.0,
        num_threads=3,
        machine=MachineSettings(
            num_cpus=1.5,
            memory_bytes=2000,
            num_gpus=4,
            gpu_devices=("0", "GPU-2"),
            python_environments={"vllm": "/opt/vllm/bin/python"},
        ),
        function_variables={"RLHFLESS_REWARD_ALLOWED_HOSTS": "judge.example", "RLHFLESS_NUM_RANKS": "2"},
        cpu_hour_usd=0.5,
        gpu_hour_usd=2.0,
    )


def test_a_variable_that_is_set_to_nothing_counts_as_unset() -> None:
    names = ["RLHFLESS_STATE_DIR", "REDIS_URL", "RLHFLESS_BLOB_URL", "RLHFLESS_ROOTS", "RLHFLESS_API_HOST"]
    names += ["RLHFLESS_API_PORT", "RLHFLESS_THREADS", "RLHFLESS_API_TOKEN_FILE", "RLHFLESS_MANIFESTS"]
    assert settings(**dict.fromkeys(names, "")) == settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RLHFLESS_API_PORT", "http"),
        ("RLHFLESS_API_PORT", "-1"),
        ("RLHFLESS_THREADS", "0"),
        ("RLHFLESS_THREADS", "1.5"),
        ("RLHFLESS_CALL_TIMEOUT_S", "0"),
        ("RLHFLESS_CALL_TIMEOUT_S", "nan"),
        ("RLHFLESS_CALL_TIMEOUT_S", "inf"),
        ("RLHFLESS_BLOB_BUDGET_BYTES", "-4"),
        ("RLHFLESS_CPU_HOUR_USD", "-0.1"),
        ("RLHFLESS_GPU_HOUR_USD", "free"),
    ],
)
def test_a_number_that_is_none_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{name}='{value}'"):
        settings(**{name: value})


def test_a_password_is_not_shown() -> None:
    assert "hidden" not in repr(settings(REDIS_PASSWORD="hidden"))


async def test_any_state_folder_makes_a_blob_url_that_opens_it(tmp_path: Path) -> None:
    found = settings(RLHFLESS_STATE_DIR=str(tmp_path / "50% of #1"))
    redis = RedisConnection("redis://127.0.0.1:1/0")
    blobs = open_blobs(found.blob_url, redis, budget_bytes=1)
    assert isinstance(blobs, DirectoryBlobs)
    await blobs.put("the-run", 0, "weights", b"x")
    assert (tmp_path / "50% of #1" / "blobs").is_dir()
    await redis.close()


def test_functions_inherit_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "hidden")
    monkeypatch.setenv("HOME", "/home/me")
    inherited = function_environment()
    assert inherited["HOME"] == "/home/me"
    assert inherited["PYTHONPATH"] == str(REPOSITORY)
    assert "REDIS_PASSWORD" not in inherited


def test_an_api_that_other_machines_reach_needs_a_token() -> None:
    with pytest.raises(SettingsInvalid, match="RLHFLESS_API_TOKEN_FILE"):
        settings(RLHFLESS_API_HOST="0.0.0.0")
    assert settings(RLHFLESS_API_HOST="localhost").api_token_file is None


def test_the_machines_gpus_are_found_by_their_device_files(tmp_path: Path) -> None:
    for name in ("nvidia10", "nvidia0", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert MachineSettings.from_environment({}, devices=tmp_path).gpu_devices == ("0", "2", "10")
    assert MachineSettings.from_environment({"RLHFLESS_GPU_DEVICES": ""}, devices=tmp_path).gpu_devices == ()


@pytest.mark.parametrize("value", ["vllm", "=/bin/python", "vllm=", "a=/x,b"])
def test_an_environment_without_a_name_or_an_interpreter_is_refused(value: str) -> None:
    with pytest.raises(SettingsInvalid, match="RLHFLESS_ENVIRONMENTS"):
        settings(RLHFLESS_ENVIRONMENTS=value)


def test_prefix_kv_is_in_memory_that_processes_share_and_pods_do_not(tmp_path: Path) -> None:
    here = settings(RLHFLESS_STATE_DIR=str(tmp_path))
    other = settings(RLHFLESS_STATE_DIR=str(tmp_path / "other"))
    assert here.prefix_kv.url.startswith(("file:///dev/shm/rlhfless-", tmp_path.as_uri()))
    assert here.prefix_kv.url != other.prefix_kv.url
    assert settings(RLHFLESS_PREFIX_KV_URL="file:///shared").own_memory is None
    with pytest.raises(SettingsInvalid, match="RLHFLESS_PREFIX_KV_BYTES"):
        settings(RLHFLESS_PREFIX_KV_BYTES="much")


def test_a_stack_knows_the_memory_that_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.settings.SHARED_MEMORY", tmp_path)
    monkeypatch.setattr("controller.settings.LARGE_MEMORY_BYTES", 1)
    found = settings(RLHFLESS_STATE_DIR="/state")
    assert found.own_memory is not None
    assert (found.own_memory.parent, found.own_memory.as_uri()) == (tmp_path, found.prefix_kv.url)
    monkeypatch.setattr("controller.settings.LARGE_MEMORY_BYTES", 2**62)
    assert settings(RLHFLESS_STATE_DIR="/state").prefix_kv.url == "file:///state/prefix-kv"
    assert settings(RLHFLESS_STATE_DIR="/state").own_memory is None


ON_CLUSTER = {
    "RLHFLESS_PLATFORM": "knative",
    "REDIS_URL": "redis://redis:6379/0",
    "RLHFLESS_TOKEN_FILE": "/run/token",
    "RLHFLESS_BLOB_URL": "redis://",
}


def test_functions_run_on_this_machine_unless_a_cluster_is_asked_for() -> None:
    assert settings(KUBECONFIG="a:b").cluster is None
    assert settings(**ON_CLUSTER).cluster is not None
    assert settings(**ON_CLUSTER).prefix_kv.url == "redis://"
    with pytest.raises(SettingsInvalid, match="RLHFLESS_PLATFORM='nomad'"):
        settings(RLHFLESS_PLATFORM="nomad")


@pytest.mark.parametrize("name", ["REDIS_URL", "RLHFLESS_TOKEN_FILE", "RLHFLESS_BLOB_URL"])
def test_a_cluster_needs_what_functions_and_controller_share(name: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{name} is not set"):
        settings(**{**ON_CLUSTER, name: ""})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"RLHFLESS_INGRESS_URL": "10.0.0.1"}, "RLHFLESS_INGRESS_URL"),
        ({"KUBECONFIG": "/a:/b"}, "KUBECONFIG names several files"),
    ],
)
def test_ways_to_a_cluster_that_lead_nowhere_are_refused(changes: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsInvalid, match=said):
        settings(**{**ON_CLUSTER, **changes})


def test_an_admin_token_without_a_token_of_the_api_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="set RLHFLESS_API_TOKEN_FILE too"):
        settings(RLHFLESS_ADMIN_TOKEN_FILE="/run/admin-token")


@pytest.mark.parametrize("content", ["", "\n", "short", "with a space in the middle", "ünprintable-anywhere"])
def test_a_token_file_without_a_token_is_refused_unseen(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsInvalid, match="RLHFLESS_API_TOKEN_FILE") as refused:
        read_token_file(file, "RLHFLESS_API_TOKEN_FILE")
    assert not content.strip() or content not in str(refused.value)


def test_a_token_is_read_without_the_line_end_around_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-this-api\n")
    assert read_token_file(file, "X") == "a-token-of-this-api"
    with pytest.raises(SettingsInvalid, match="cannot be read: No such file"):
        read_token_file(tmp_path / "none", "X")
