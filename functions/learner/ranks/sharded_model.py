"""A model in training that lies in parts on the ranks (FSDP2), and its way from and to one in a piece on rank 0.

The model in a piece is what versions are read into and published from, so blobs do not depend on the number of ranks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.learner.ranks.process_group import ProcessRanks
from shared.training.optimizer import MOMENTS, trainable_parameters
from shared.training.parts import part_like, whole


@dataclass(frozen=True, slots=True)
class ModelWithOptimizer:
    """A model and the optimizer over its trainable parameters, in a piece or in parts."""

    model: PreTrainedModel
    optimizer: AdamW


def shard(model: PreTrainedModel, ranks: ProcessRanks) -> None:
    """Leave this rank its part of a model that every rank has built alike.

    A layer is whole on a rank only while it computes. Gradients are summed over the ranks, not averaged: each rank's
    loss already has the denominators of the whole mini-batch.
    """
    layers = set(model._no_split_modules or ())
    for module in [each for each in model.modules() if type(each).__name__ in layers]:
        fully_shard(module, mesh=ranks.mesh, reshard_after_forward=True)
    fully_shard(model, mesh=ranks.mesh, reshard_after_forward=True)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            # The only reduction that gloo knows; and no factor is left to apply.
            module.set_force_sum_reduction_for_comms(True)


@torch.no_grad()
def distribute_weights(source: PreTrainedModel | None, parts: PreTrainedModel, ranks: ProcessRanks) -> None:
    """Give every rank its part of rank 0's weights; the other ranks have no ``source``."""
    tensors = None if source is None else _named_tensors(source)
    for name, target in _named_tensors(parts).items():
        target.copy_(part_like(_sent(None if tensors is None else tensors[name], target, ranks), target))


@torch.no_grad()
def distribute_moments(
    source: ModelWithOptimizer | None, parts: ModelWithOptimizer, num_updates: int, ranks: ProcessRanks
) -> None:
    """Give every rank its part of the moments of rank 0's optimizer, which was applied ``num_updates`` times."""
    parts.optimizer.state.clear()
    if num_updates == 0:
        return
    originals = {} if source is None else trainable_parameters(source.model)
    for name, parameter in trainable_parameters(parts.model).items():
        state = None if source is None else source.optimizer.state[originals[name]]
        moments = {
            moment: part_like(_sent(None if state is None else state[moment], parameter, ranks), parameter)
            for moment in MOMENTS
        }
        step = torch.tensor(float(num_updates), dtype=torch.float32, device=ranks.device)
        parts.optimizer.state[parameter] = {"step": step, **moments}


@torch.no_grad()
def collect(parts: ModelWithOptimizer, target: ModelWithOptimizer | None) -> None:
    """Bring what was trained back to rank 0, weights and moments; the other ranks have no ``target``."""
    originals = {} if target is None else trainable_parameters(target.model)
    for name, parameter in trainable_parameters(parts.model).items():
        state = parts.optimizer.state[parameter]
        weights = whole(parameter)
        moments = {moment: whole(state[moment]) for moment in MOMENTS}
        if target is None:
            continue
        original = originals[name]
        original.copy_(weights)
        target.optimizer.state[original] = {
            "step": state["step"].to(original.device, copy=True),
            **{moment: tensor.to(original.device, copy=True) for moment, tensor in moments.items()},
        }


def num_updates_of(trained: ModelWithOptimizer) -> int:
    """How often the optimizer was applied."""
    steps = [int(state["step"]) for state in trained.optimizer.state.values()]
    return max(steps, default=0)


def _named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, tied ones once, and the buffers that belong to the weights, by name."""
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    stored = model.state_dict(keep_vars=True).keys()
    tensors.update({name: buffer for name, buffer in model.named_buffers() if name in stored})
    return dict(sorted(tensors.items()))


def _sent(tensor: Tensor | None, like: Tensor, ranks: ProcessRanks) -> Tensor:
    """Rank 0's tensor, whole, on this rank's device."""
    if tensor is None:
        tensor = torch.empty(like.shape, dtype=like.dtype, device=ranks.device)
    return ranks.from_first(tensor.detach().to(ranks.device, like.dtype).contiguous())
