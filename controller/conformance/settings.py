"""Where a function is tested, with which token, and before which store: options, else the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.contracts.stage import Stage

DEMO_MODEL = "/models/demo"
"""Where the images carry the demo's model."""


class ConformanceInvalid(Exception):
    """An option is missing or cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceSettings:
    """Secrets, and what may hold one, are kept out of ``repr``."""

    url: str
    stage: Stage
    host: str | None
    """What is asked for there, where the URL is an ingress."""
    token: str = field(repr=False)
    redis_url: str | None = field(repr=False)
    """Of the store that the function uses; ``None`` leaves out what needs it."""
    redis_password: str | None = field(repr=False)
    blob_url: str = field(repr=False)
    model: str
    """A model folder as the function sees it."""
    model_here: Path
    """The same folder on this machine."""

    @classmethod
    def read(
        cls,
        *,
        url: str,
        stage: str,
        host: str | None = None,
        token: str | None = None,
        token_file: Path | None = None,
        redis_url: str | None = None,
        blob_url: str | None = None,
        model: str | None = None,
        model_here: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> "ConformanceSettings":
        """The options, and for what was not said the variables that functions have. Raises ``ConformanceInvalid``."""
        env = os.environ if environment is None else environment
        if not url.startswith(("http://", "https://")):
            raise ConformanceInvalid(f"{url!r} is not an address: write it as http://127.0.0.1:8080")
        if stage not in set(Stage):
            raise ConformanceInvalid(f"there is no stage {stage!r}: --stage is one of {', '.join(Stage)}")
        return cls(
            url=url.rstrip("/"),
            stage=Stage(stage),
            host=host,
            token=_token(token, token_file, env),
            redis_url=redis_url or env.get("REDIS_URL") or None,
            redis_password=env.get("REDIS_PASSWORD") or None,
            blob_url=blob_url or env.get("RLHFLESS_BLOB_URL") or "redis://",
            model=model or str(model_here or DEMO_MODEL),
            model_here=model_here or Path(model or DEMO_MODEL),
        )


def _token(token: str | None, file: Path | None, env: Mapping[str, str]) -> str:
    found = token if file is None else None
    found = found or (None if file else env.get("RLHFLESS_TOKEN"))
    path = file or (Path(env["RLHFLESS_TOKEN_FILE"]) if env.get("RLHFLESS_TOKEN_FILE") else None)
    if found is None and path is not None:
        try:
            found = path.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            # Without the error itself: one of decoding quotes the content.
            raise ConformanceInvalid(f"the token file {path} cannot be read as text") from error
    if not found or not found.isascii() or not found.isprintable():
        raise ConformanceInvalid("the functions' token is missing: name its file with --token-file")
    return found
