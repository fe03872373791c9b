"""Where prefix KV is kept, from the environment: read by functions and controller alike."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

GIB = 2**30
POD_MEMORY = ("file:///dev/shm", "file://localhost/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixKvSettings:
    """What may hold a password is kept out of ``repr``."""

    cache_url: str | None = field(repr=False)
    """``REDIS_CACHE_URL``: the server for what may be dropped, best one that evicts; ``REDIS_URL``'s unless set."""
    cache_password: str | None = field(repr=False)
    """``REDIS_CACHE_PASSWORD``; ``REDIS_PASSWORD`` unless set."""
    url: str = field(repr=False)
    """``RLHFLESS_PREFIX_KV_URL``: where the bytes go: ``redis://`` for the cache server, ``file:///folder``, or an
    object store such as ``s3://bucket/folder``."""
    budget_bytes: int
    """``RLHFLESS_PREFIX_KV_BYTES``: what one run may keep; 1 GiB unless set."""

    @classmethod
    def from_environment(cls, env: Mapping[str, str], *, default_url: str = "redis://") -> "PrefixKvSettings":
        """Read and check the environment. Raises ``ValueError`` whose message begins with the variable."""
        url = env.get("RLHFLESS_PREFIX_KV_URL") or default_url
        if env.get("KUBERNETES_SERVICE_HOST") and url.startswith(POD_MEMORY):
            raise ValueError(
                "RLHFLESS_PREFIX_KV_URL names a folder in memory, which pods do not share: use redis://, a shared "
                "volume or an object store"
            )
        budget = env.get("RLHFLESS_PREFIX_KV_BYTES") or str(GIB)
        if not re.fullmatch(r"[1-9][0-9]{0,17}", budget):
            raise ValueError(f"RLHFLESS_PREFIX_KV_BYTES is {budget[:40]!r}: set it to a whole number of bytes")
        return cls(
            cache_url=env.get("REDIS_CACHE_URL") or None,
            cache_password=env.get("REDIS_CACHE_PASSWORD") or env.get("REDIS_PASSWORD") or None,
            url=url,
            budget_bytes=int(budget),
        )
