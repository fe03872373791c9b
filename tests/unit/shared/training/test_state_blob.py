import pytest
import torch
from safetensors.torch import save

from shared.training.errors import DamagedState
from shared.training.state_blob import decode_state, encode_state

TENSORS = {"b": torch.arange(6.0).view(2, 3), "a": torch.tensor([0.1, 1e-30], dtype=torch.float64)}
FACTS = {"z": 1, "a": 0.1 + 0.2, "m": {"x": [1, 2.5]}}


def test_everything_comes_back_exactly() -> None:
    tensors, facts = decode_state("kind", encode_state("kind", TENSORS, FACTS))

    assert facts == FACTS
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_equal_states_give_equal_bytes_in_any_order() -> None:
    forward = encode_state("kind", TENSORS, FACTS)
    backward = encode_state("kind", dict(reversed(TENSORS.items())), dict(reversed(FACTS.items())))

    assert forward == backward


def test_one_kind_is_not_read_as_another() -> None:
    with pytest.raises(DamagedState, match="learner's kind, not its other"):
        decode_state("other", encode_state("kind", TENSORS, FACTS))


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"no safetensors at all",
        encode_state("kind", TENSORS, FACTS)[:-1],
        save(TENSORS),
        save(TENSORS, metadata={"facts": "{"}),
        save(TENSORS, metadata={"facts": "[]"}),
        save(TENSORS, metadata={"facts": "[" * 200_000}),
        save(TENSORS, metadata={"other": "{}"}),
    ],
)
def test_damaged_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(DamagedState, match="no learner state"):
        decode_state("kind", blob)
