"""Adapters as bytes, and merged into a weights blob without torch."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from shared.codec.bfloat16 import from_bfloat16, to_bfloat16
from shared.codec.lora_adapter import (
    DamagedAdapter,
    LoraAdapter,
    decode_adapter,
    encode_adapter,
    merge_adapter,
    peft_config,
)


def make_adapter(*names: str, rank: int = 2, alpha: float = 3.0, seed: int = 0) -> LoraAdapter:
    """Of layers `[4, 5]`."""
    rng = np.random.default_rng(seed)
    return LoraAdapter(
        rank=rank,
        alpha=alpha,
        matrices={
            name: (rng.normal(size=(rank, 5)).astype(np.float32), rng.normal(size=(4, rank)).astype(np.float32))
            for name in names or ("layers.0.q_proj", "layers.0.v_proj")
        },
    )


def test_an_adapter_comes_back_exactly() -> None:
    adapter = make_adapter()
    decoded = decode_adapter(encode_adapter(adapter))
    assert (decoded.rank, decoded.alpha, decoded.scale) == (2, 3.0, 1.5)
    assert decoded.matrices.keys() == adapter.matrices.keys()
    for name, pair in adapter.matrices.items():
        assert all(np.array_equal(was, now) for was, now in zip(pair, decoded.matrices[name], strict=True))


def test_equal_adapters_are_equal_bytes_and_others_are_not() -> None:
    adapter = make_adapter()
    turned = LoraAdapter(rank=2, alpha=3.0, matrices=dict(reversed(adapter.matrices.items())))
    assert encode_adapter(adapter) == encode_adapter(turned)
    assert encode_adapter(adapter) != encode_adapter(make_adapter(alpha=4.0))
    assert encode_adapter(adapter) != encode_adapter(make_adapter(seed=1))


def weights(**extra: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    shapes = {"layers.0.q_proj.weight": (4, 5), "layers.0.v_proj.weight": (4, 5), "norm.weight": (5,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | extra


def test_merged_weights_are_w_plus_scaled_ba_and_the_rest_is_as_it_was() -> None:
    adapter, base = make_adapter("layers.0.q_proj"), weights()
    blob = save(base, metadata={"format": "pt"})
    merged_blob = bytes(merge_adapter(blob, adapter))
    merged = load(merged_blob)
    a, b = adapter.matrices["layers.0.q_proj"]
    expected = base["layers.0.q_proj.weight"].astype(np.float64) + 1.5 * b.astype(np.float64) @ a.astype(np.float64)
    np.testing.assert_allclose(merged["layers.0.q_proj.weight"], expected, rtol=1e-6, atol=1e-6)
    for name in ("layers.0.v_proj.weight", "norm.weight"):
        assert np.array_equal(merged[name], base[name])
    header = 8 + int.from_bytes(blob[:8], "little")
    assert merged_blob[:header] == blob[:header]
    assert load(blob)["layers.0.q_proj.weight"].tobytes() == base["layers.0.q_proj.weight"].tobytes()


def test_weights_in_bfloat16_are_merged_in_float32_and_rounded_once() -> None:
    adapter, base = make_adapter("layers.0.q_proj"), weights()
    bits = to_bfloat16(base["layers.0.q_proj.weight"])
    blob = save({"layers.0.q_proj.weight": bits}).replace(b'"U16"', b'"BF16"')
    blob = repacked(blob)
    merged = merge_adapter(blob, adapter)
    stored = np.frombuffer(merged[8 + int.from_bytes(merged[:8], "little") :], np.uint16).reshape(4, 5)
    a, b = adapter.matrices["layers.0.q_proj"]
    assert np.array_equal(stored, to_bfloat16(from_bfloat16(bits) + np.float32(1.5) * (b @ a)))


def repacked(blob: bytes) -> bytes:
    """A file whose header's length was changed, with the length that it now has."""
    old = int.from_bytes(blob[:8], "little")
    end = blob.index(b"}}") + 2
    header = blob[8:end]
    return len(header).to_bytes(8, "little") + header + blob[8 + old + 1 :]


def test_an_adapter_of_other_layers_or_shapes_is_refused() -> None:
    blob = save(weights())
    with pytest.raises(DamagedAdapter, match=r"layers\.7\.q_proj"):
        merge_adapter(blob, make_adapter("layers.7.q_proj"))
    with pytest.raises(DamagedAdapter, match="norm"):
        merge_adapter(blob, make_adapter("norm"))
    with pytest.raises(DamagedAdapter, match="I32"):
        merge_adapter(save({"q.weight": np.zeros((4, 5), np.int32)}), make_adapter("q"))


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\x08\0\0\0\0\0\0\0{}      ",
        save(weights()),
        save(weights(), metadata={"lora": "{}"}),
        save(weights(), metadata={"lora": json.dumps({"rank": 2, "alpha": 1.0})}),
        save({}, metadata={"lora": json.dumps({"rank": 2, "alpha": 1.0})}),
        encode_adapter(make_adapter())[:-1],
        encode_adapter(make_adapter()) + b"x",
    ],
)
def test_what_is_no_adapter_is_refused(blob: bytes) -> None:
    with pytest.raises(DamagedAdapter):
        decode_adapter(blob)


def test_matrices_of_another_rank_are_refused() -> None:
    with pytest.raises(DamagedAdapter, match="rank 3"):
        LoraAdapter(rank=3, alpha=1.0, matrices=make_adapter().matrices)


def test_peft_is_told_rank_alpha_and_layers() -> None:
    config = peft_config(make_adapter(), "models/tiny")
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (2, 3.0, "LORA")
    assert config["target_modules"] == ["layers.0.q_proj", "layers.0.v_proj"]
