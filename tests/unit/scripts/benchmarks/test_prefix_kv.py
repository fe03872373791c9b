"""The benchmark of prefix KV: it measures what it says, and a changed bit ends it."""

import json

import pytest

from scripts.benchmarks import prefix_kv
from shared.store.prefix_kv import KvPiece

SMALL = ["--prompt-len", "70", "--repeats", "1", "--dtype", "float32", "--store", "redis", "memory", "--json"]


def test_every_case_has_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    prefix_kv.main(SMALL)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [case["name"] for case in found["cases"]] == ["P70 float32 redis", "P70 float32 memory"]
    for case in found["cases"]:
        # Keys and values of 4 layers with 2 heads of 64 numbers, and a header.
        assert 0 < case["bytes"] - 70 * 4 * 2 * 64 * 2 * 4 < 2000
        assert all(case[name] > 0 for name in ("prefill_ms", "store_ms", "fetch_ms", "rebuild_ms", "speedup"))
        assert case["is_exact"]


def test_a_changed_bit_ends_it_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces_of = prefix_kv.pieces_of

    def changed(*arguments: object) -> list[KvPiece]:
        pieces = pieces_of(*arguments)
        return [KvPiece(piece.blocks, bytes(piece.data[:-1]) + bytes([piece.data[-1] ^ 1])) for piece in pieces]

    monkeypatch.setattr(prefix_kv, "pieces_of", changed)
    with pytest.raises(SystemExit, match="came back changed"):
        prefix_kv.main([*SMALL, "--store", "memory"])
