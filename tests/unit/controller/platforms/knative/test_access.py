"""Ways to the API server: a service account's folder and kubeconfigs. Certificates are made here."""

import base64
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.platforms.knative.access import AccessInvalid, in_cluster
from controller.platforms.knative.cluster_access import find_access
from controller.platforms.knative.credentials import NoToken
from controller.platforms.knative.kubeconfig import from_kubeconfig
from controller.settings import ClusterSettings

TOKEN = "a-token-that-is-nobodys"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(key), "-out", str(certificate), "-days", "1", "-subj", "/CN=kubernetes"),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def config_of(cluster: dict[str, Any], user: dict[str, Any], **context: Any) -> dict[str, Any]:
    return {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "it", "user": "me", **context}}],
        "clusters": [{"name": "it", "cluster": {"server": "https://10.0.0.1:6443/", **cluster}}],
        "users": [{"name": "me", "user": user}],
    }


def written(folder: Path, document: Any) -> Path:
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_pod_has_its_service_account(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    (tmp_path / "ca.crt").write_bytes(certificate[0].read_bytes())
    (tmp_path / "namespace").write_text("training")
    (tmp_path / "token").write_text(TOKEN)
    access = in_cluster(host="fd00::1", port="443", namespace=None, folder=tmp_path)
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "training")
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    assert access.tls.check_hostname
    assert access.credentials.headers() == {"authorization": f"Bearer {TOKEN}"}
    assert TOKEN not in repr(access)
    assert in_cluster(host="h", port="1", namespace="other", folder=tmp_path).namespace == "other"


def test_a_pod_without_a_service_account_is_told(tmp_path: Path) -> None:
    with pytest.raises(AccessInvalid, match="automountServiceAccountToken"):
        in_cluster(host="h", port="1", namespace=None, folder=tmp_path)


def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    path = written(tmp_path, config_of({}, {"token": TOKEN}, namespace="training"))
    access = from_kubeconfig(path)
    assert (access.server, access.namespace) == ("https://10.0.0.1:6443", "training")
    assert access.credentials.headers() == {"authorization": f"Bearer {TOKEN}"}
    assert TOKEN not in repr(access)
    assert from_kubeconfig(path, namespace="other").namespace == "other"


@pytest.mark.parametrize("inline", [True, False])
def test_a_kubeconfig_with_a_client_certificate(tmp_path: Path, certificate: tuple[Path, Path], inline: bool) -> None:
    def content(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode() if inline else path.name

    suffix = "-data" if inline else ""
    for path in certificate:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    cluster = {f"certificate-authority{suffix}": content(certificate[0])}
    user = {f"client-certificate{suffix}": content(certificate[0]), f"client-key{suffix}": content(certificate[1])}
    access = from_kubeconfig(written(tmp_path, config_of(cluster, user)))
    assert isinstance(access.credentials, NoToken)
    assert access.tls is not None
    assert [found["subject"] for found in access.tls.get_ca_certs()] == [((("commonName", "kubernetes"),),)]
    assert access.namespace == "default"


def test_a_kubeconfig_with_a_token_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    access = from_kubeconfig(written(tmp_path, config_of({}, {"tokenFile": "token"})))
    assert access.credentials.headers() == {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({}, {"exec": {"command": "aws"}}, "running 'aws'.*kubectl create token"),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider.*kubectl create token"),
        ({}, {"username": "me", "password": "hidden-word"}, "username"),
        ({"insecure-skip-tls-verify": True}, {}, "insecure-skip-tls-verify is refused"),
        ({"server": "10.0.0.1"}, {}, "is not a URL"),
        ({"certificate-authority": "missing.pem"}, {}, "certificates cannot be used"),
        ({"certificate-authority-data": "%%%"}, {}, "certificates cannot be used"),
        ({}, {"tokenFile": "missing"}, "token file .* cannot be read"),
    ],
)
def test_what_a_kubeconfig_may_not_have(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], said: str
) -> None:
    path = written(tmp_path, config_of(cluster, user))
    cluster_settings = ClusterSettings.from_environment({"KUBECONFIG": str(path)})
    with pytest.raises(AccessInvalid, match=said) as refused:
        find_access(cluster_settings)
    assert "hidden-word" not in str(refused.value)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "has no context None"),
        ({"current-context": "there", "contexts": [{"name": "here", "context": {}}]}, "has no context 'there'"),
        ([], "is not a kubeconfig"),
        ({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "x"}}]}, "has no cluster 'x'"),
    ],
)
def test_a_kubeconfig_that_leads_nowhere(tmp_path: Path, document: Any, said: str) -> None:
    with pytest.raises(AccessInvalid, match=said):
        from_kubeconfig(written(tmp_path, document))


def test_outside_of_a_cluster_a_kubeconfig_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(AccessInvalid, match="set KUBECONFIG"):
        find_access(ClusterSettings.from_environment({}))
    with pytest.raises(AccessInvalid, match="cannot be read"):
        find_access(ClusterSettings.from_environment({"KUBECONFIG": str(tmp_path / "none")}))
    with pytest.raises(AccessInvalid, match="service account"):
        find_access(ClusterSettings.from_environment({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}))
