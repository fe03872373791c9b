"""What KV is valid for: the whole policy, adapter included, its tokenizer, and the engine's layout."""

from pathlib import Path

from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.inference.prefix_kv import KvLayout
from shared.inference.prefix_scope import prefix_scope
from shared.modeling.tokenizer import Tokenizer

LAYOUT = KvLayout(num_layers=2, num_kv_heads=2, head_dim=8, dtype="bfloat16")
MODEL = Path(__file__).resolve().parents[4] / "scripts/demo/model"


def blob(letter: str) -> BlobRef:
    return BlobRef(id=f"run-1/000000/{letter}", num_bytes=1, sha256=letter * 64)


def policy(adapter: str | None = None, version: int = 0) -> PolicyRef:
    return PolicyRef(
        version=version,
        model=ModelRef(path=str(MODEL)),
        weights=blob("a"),
        adapter=None if adapter is None else blob(adapter),
    )


def test_the_scope_names_all_that_kv_depends_on() -> None:
    scope = prefix_scope(policy("b"), str(MODEL), LAYOUT)
    assert scope.weights_digest == policy("b").digest
    assert scope.tokenizer_fingerprint == Tokenizer.load(MODEL).fingerprint
    assert (scope.dtype, scope.layout) == ("bfloat16", LAYOUT.name)


def test_an_adapter_changes_it_and_a_version_number_does_not() -> None:
    scope = prefix_scope(policy("b"), str(MODEL), LAYOUT)
    assert scope != prefix_scope(policy(), str(MODEL), LAYOUT)
    assert scope != prefix_scope(policy("c"), str(MODEL), LAYOUT)
    assert scope == prefix_scope(policy("b", version=7), str(MODEL), LAYOUT)


def test_a_model_without_a_tokenizer_has_a_scope_too(tmp_path: Path) -> None:
    assert prefix_scope(policy(), str(tmp_path), LAYOUT).tokenizer_fingerprint == "none"
