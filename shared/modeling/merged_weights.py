"""A model's weights with at most one LoRA adapter merged into them, for who computes with many versions in a row."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from shared.codec.lora_adapter import DamagedAdapter, LoraAdapter, decode_adapter
from shared.modeling.errors import WeightsMismatch
from shared.modeling.weights import load_blob


class MergedWeights:
    """Weights are loaded once, then adapters come and go.

    What an adapter changes is kept as it was, and every merge starts from there: no number of versions makes it drift.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._originals: dict[str, Tensor] = {}
        """Of the parameters that an adapter has changed, by name."""

    def load(self, weights: bytes | memoryview) -> None:
        """Take other weights, in the model's dtype and without an adapter.

        Raises WeightsMismatch, with the model untouched.
        """
        load_blob(self._model, weights, dtype=self._model.dtype)
        self._originals = {}

    @torch.no_grad()
    def merge(self, adapter: bytes | memoryview | None) -> None:
        """W + (α/r)·B·A in place of every adapted W, computed in float32; None takes the last adapter out.

        Raises WeightsMismatch, with the model untouched, for an adapter of another model.
        """
        changes = {} if adapter is None else self._changes_of(adapter)
        for name in self._originals.keys() - changes.keys():
            self._model.get_parameter(name).copy_(self._originals.pop(name))
        for name, (a, b, scale) in changes.items():
            parameter = self._model.get_parameter(name)
            original = self._originals.setdefault(name, parameter.detach().clone())
            parameter.copy_(original.float().addmm(b, a, alpha=scale))

    def _changes_of(self, blob: bytes | memoryview) -> dict[str, tuple[Tensor, Tensor, float]]:
        """(A, B, α/r) by parameter."""
        try:
            adapter = decode_adapter(bytes(blob))
        except DamagedAdapter as error:
            raise WeightsMismatch(f"The adapter cannot be read: {error}.") from error
        parameters = dict(self._model.named_parameters())
        return {
            f"{name}.weight": self._change(adapter, name, parameters.get(f"{name}.weight")) for name in adapter.matrices
        }

    def _change(self, adapter: LoraAdapter, name: str, parameter: Tensor | None) -> tuple[Tensor, Tensor, float]:
        a, b = adapter.matrices[name]
        if parameter is None or parameter.shape != (b.shape[0], a.shape[1]):
            raise WeightsMismatch(
                f"The adapter does not fit this model: it has no {name} of shape {b.shape[0], a.shape[1]}."
            )
        device = parameter.device
        return torch.from_numpy(a).to(device), torch.from_numpy(b).to(device), adapter.scale
