"""What to say about a key that nobody knows."""

import difflib

from controller.runs.config.aliases import ALIASES
from controller.runs.config.keys import known_keys
from controller.runs.config.problems import ConfigProblem
from controller.runs.config.run_config import RunConfig

_SECRETS = ("token", "password", "passwd", "secret", "credentials", "api_key", "access_key", "secret_key")


def unknown_key(spelled: str, bare: str) -> ConfigProblem:
    """Name the keys that are spelled alike. The value is never shown: it may be a secret."""
    leaf = bare.rpartition(".")[2].lower()
    if any(leaf == word or leaf.endswith(f"_{word}") for word in _SECRETS):
        return ConfigProblem(
            field=spelled,
            reason="a run's config is stored and shown, so it holds no secrets",
            suggestion="mount it into the function that needs it",
        )
    close = _alike(bare, leaf)
    if close:
        suggestion = f"did you mean {' or '.join(close)}?"
    else:
        section = bare.partition(".")[0]
        inside = [name for name in known_keys() if name.startswith(f"{section}.")]
        sections = list(RunConfig.model_fields)
        suggestion = f"{'its section has' if inside else 'the sections are'} {', '.join(inside or sections)}"
    return ConfigProblem(field=spelled, reason="unknown key", suggestion=suggestion)


def _alike(bare: str, leaf: str) -> list[str]:
    """At most three keys whose last part, or an alias of theirs, is the same or spelled alike; the nearest first."""
    keys_by_leaf: dict[str, list[str]] = {}
    for name, key in [
        *((name, name) for name in known_keys()),
        *((name, alias.key) for name, alias in ALIASES.items()),
    ]:
        keys_by_leaf.setdefault(name.rpartition(".")[2], []).append(key)
    leaves = [leaf] if leaf in keys_by_leaf else difflib.get_close_matches(leaf, keys_by_leaf, n=3, cutoff=0.7)
    near = [
        key
        for alike in leaves
        for key in sorted(keys_by_leaf[alike], key=lambda key: -difflib.SequenceMatcher(None, bare, key).ratio())
    ]
    return list(dict.fromkeys(near))[:3]
