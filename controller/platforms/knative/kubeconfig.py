"""Reads a kubeconfig: the current context's server, namespace and user. What would run a program is refused."""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from controller.platforms.knative.access import AccessInvalid, KubeAccess
from controller.platforms.knative.credentials import Credentials, NoToken, StaticToken, TokenFile

MAKE_TOKEN = "make a token with 'kubectl create token ACCOUNT' and put it under the user as 'token'"


def from_kubeconfig(path: Path, *, namespace: str | None = None) -> KubeAccess:
    """The access of the file's current context. Raises ``AccessInvalid`` naming what is missing or refused."""
    document = _read(path)
    context = _named(document, "contexts", "context", document.get("current-context"), path)
    cluster = _named(document, "clusters", "cluster", context.get("cluster"), path)
    user = _named(document, "users", "user", context.get("user"), path)
    server = str(cluster.get("server", ""))
    if not server.startswith(("https://", "http://")):
        raise AccessInvalid(f"{path}: the cluster's server {server!r} is not a URL")
    return KubeAccess(
        server=server.rstrip("/"),
        namespace=namespace or context.get("namespace") or "default",
        tls=_tls(cluster, user, path) if server.startswith("https://") else None,
        credentials=_credentials(user, path),
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AccessInvalid(f"the kubeconfig {path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise AccessInvalid(f"{path} is not a kubeconfig")
    return document


def _named(document: Mapping[str, Any], group: str, kind: str, name: object, path: Path) -> Mapping[str, Any]:
    for entry in document.get(group) or ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
            return dict(entry[kind])
    raise AccessInvalid(f"{path} has no {kind} {name!r}: choose a context with 'kubectl config use-context'")


def _credentials(user: Mapping[str, Any], path: Path) -> Credentials:
    if "exec" in user:
        command = (user["exec"] or {}).get("command", "a program")
        raise AccessInvalid(f"{path}: the user's token comes from running {command!r}, which is not done: {MAKE_TOKEN}")
    for key in ("auth-provider", "username", "password"):
        if key in user:
            raise AccessInvalid(f"{path}: the user has {key!r}, which is not supported: {MAKE_TOKEN}")
    if user.get("tokenFile"):
        token = TokenFile(_beside(path, user["tokenFile"]))
        token.headers()
        return token
    return StaticToken(str(user["token"])) if user.get("token") else NoToken()


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], path: Path) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify"):
        raise AccessInvalid(f"{path}: insecure-skip-tls-verify is refused: give the cluster's certificate-authority")
    try:
        authority = _content(cluster, "certificate-authority", path)
        tls = ssl.create_default_context(cadata=None if authority is None else authority.decode("ascii"))
        certificate, key = _content(user, "client-certificate", path), _content(user, "client-key", path)
        if certificate is not None and key is not None:
            # ssl reads a private key from a file only.
            with _private_file(certificate + b"\n" + key) as both:
                tls.load_cert_chain(both)
    except (OSError, ValueError, binascii.Error) as error:
        raise AccessInvalid(f"{path}: its certificates cannot be used: {error}") from None
    return tls


def _content(section: Mapping[str, Any], key: str, path: Path) -> bytes | None:
    if section.get(f"{key}-data"):
        return base64.b64decode(str(section[f"{key}-data"]), validate=True)
    return _beside(path, section[key]).read_bytes() if section.get(key) else None


def _beside(path: Path, name: object) -> Path:
    """Relative paths of a kubeconfig start at its own folder."""
    return path.parent / str(name)


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    descriptor, name = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield name
    finally:
        os.unlink(name)
