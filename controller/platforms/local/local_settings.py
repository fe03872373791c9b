"""The local platform's part of the controller's settings, and the token that its functions share."""

import contextlib
import os
import secrets
import sys
from pathlib import Path

from controller.platforms.local.redis_address import RedisAddress
from controller.platforms.local.settings import LocalSettings
from controller.settings import ControllerSettings, function_environment


def local_settings(settings: ControllerSettings, redis_at: RedisAddress, token_file: Path) -> LocalSettings:
    """The local platform's part of the settings, with what every function's environment needs."""
    machine = settings.machine
    secret = {} if redis_at.password is None else {"REDIS_PASSWORD": redis_at.password}
    return LocalSettings(
        manifests_dir=settings.manifests,
        log_dir=settings.state_dir / "logs",
        num_cpus=machine.num_cpus,
        memory_bytes=machine.memory_bytes,
        num_gpus=machine.num_gpus,
        gpu_devices=machine.gpu_devices,
        python_environments=machine.python_environments,
        base_environment=function_environment(),
        environment={
            "REDIS_URL": redis_at.url,
            "REDIS_PASSWORD": "",
            "REDIS_CACHE_URL": settings.prefix_kv.cache_url or "",
            "REDIS_CACHE_PASSWORD": settings.prefix_kv.cache_password or "",
            "RLHFLESS_PREFIX_KV_URL": settings.prefix_kv.url,
            "RLHFLESS_PREFIX_KV_BYTES": str(settings.prefix_kv.budget_bytes),
            "RLHFLESS_BLOB_URL": settings.blob_url,
            "RLHFLESS_BLOB_BUDGET_BYTES": str(settings.blob_budget_bytes),
            "RLHFLESS_TOKEN_FILE": str(token_file),
            "RLHFLESS_ROOTS": ":".join(map(str, settings.roots)),
            "RLHFLESS_ALLOW_HUB": "1" if settings.allow_hub else "0",
            "RLHFLESS_BIND": "127.0.0.1",
            **settings.function_variables,
            **secret,
        },
        python=sys.executable,
    )


def ensure_token(path: Path) -> str:
    """The shared token of the functions; made at the first start, readable by this user only."""
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(24))
    return path.read_text().strip()
