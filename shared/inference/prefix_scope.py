"""What the prefix KV of one policy on one kind of engine is valid for."""

import hashlib
from functools import lru_cache

from shared.contracts.policy import PolicyRef
from shared.contracts.prefill import PrefixKvScope
from shared.inference.prefix_kv import KvLayout
from shared.modeling.folder import TOKENIZER_FILES, model_folder


def prefix_scope(policy: PolicyRef, model: str, layout: KvLayout) -> PrefixKvScope:
    """The scope of KV that this policy's weights give in this layout. ``model`` is its folder or hub id."""
    return PrefixKvScope(
        weights_digest=policy.digest,
        tokenizer_fingerprint=_tokenizer_fingerprint(model),
        dtype=layout.dtype,
        layout=layout.name,
    )


@lru_cache(maxsize=8)
def _tokenizer_fingerprint(model: str) -> str:
    """SHA-256 of tokenizer.json, as ``Tokenizer.fingerprint``, without building the tokenizer; ``none`` without one."""
    file = model_folder(model, TOKENIZER_FILES) / "tokenizer.json"
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "none"
