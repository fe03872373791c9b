"""Where the Kubernetes API is and how to prove who asks: a pod's service account, or a kubeconfig."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from controller.platforms.knative.credentials import Credentials, TokenFile

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class AccessInvalid(Exception):
    """Nothing says how to reach the Kubernetes API, or what says so cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeAccess:
    """One API server and one namespace."""

    server: str
    """``https://host:port``"""
    namespace: str
    tls: ssl.SSLContext | None
    """None only for a server that speaks plain HTTP."""
    credentials: Credentials


def in_cluster(*, host: str, port: str, namespace: str | None, folder: Path = SERVICE_ACCOUNT) -> KubeAccess:
    """The access that a pod has by its service account. Raises ``AccessInvalid``."""
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        found = namespace or (folder / "namespace").read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise AccessInvalid(
            f"the pod's service account cannot be used ({error}): "
            "set automountServiceAccountToken on the controller's pod"
        ) from None
    token = TokenFile(folder / "token")
    token.headers()
    address = f"[{host}]" if ":" in host else host
    return KubeAccess(server=f"https://{address}:{port}", namespace=found, tls=tls, credentials=token)
