"""What every rank does with an order, rank 0 included: all do the same at the same time, each with its part."""

from torch import Tensor
from transformers import PreTrainedModel

from functions.learner.call_config import advantages_inputs, config_of
from functions.learner.policy_logprobs import logprobs_of_all
from functions.learner.ranks.order import Order
from functions.learner.ranks.process_group import ProcessRanks
from functions.learner.ranks.sharded_model import (
    ModelWithOptimizer,
    collect,
    distribute_moments,
    distribute_weights,
    shard,
)
from functions.learner.update import UpdateResult, update_policy
from shared.contracts.learner import UpdateInputs
from shared.modeling.loading import new_model
from shared.modeling.threads import use_threads
from shared.training.lora import attach_adapter
from shared.training.optimizer import build_optimizer
from shared.training.optimizer_config import OptimizerConfig
from shared.training.time_budget import UNLIMITED, Budget

INITIAL = OptimizerConfig(lr=1.0)
"""Of an optimizer that was not used yet: each update brings its own."""


class Member:
    """One rank, with its part of the model. Lives as long as its group; what fails ends both."""

    def __init__(self, ranks: ProcessRanks) -> None:
        self._ranks = ranks
        self._path = ""
        self._is_adapted = False
        self._parts: ModelWithOptimizer | None = None

    def follow(self, order: Order) -> None:
        """Do what rank 0 does with it."""
        if isinstance(order.call.inputs.operation, UpdateInputs):
            self.update(order)
        else:
            self.logprobs(order)

    def update(
        self, order: Order, source: ModelWithOptimizer | None = None, budget: Budget = UNLIMITED
    ) -> UpdateResult:
        """Make the update. Rank 0 alone has a ``source``, the model in a piece, which is changed; and a ``budget``."""
        config, parts = config_of(order.call), self._parts_for(order, None if source is None else source.model)
        if order.loads_state:
            distribute_moments(source, parts, order.num_updates, self._ranks)
        result = update_policy(
            parts.model,
            parts.optimizer,
            order.rows,
            config,
            order.call.key.step,
            budget=budget,
            progress=order.progress,
            ranks=self._ranks,
        )
        if result.num_updates > (order.progress.next_update if order.progress is not None else 0):
            collect(parts, source)
        return result

    def logprobs(self, order: Order, source: PreTrainedModel | None = None) -> Tensor:
        """Of all rows in sorted order, by the policy. [B, T] on the CPU"""
        inputs = advantages_inputs(order.call)
        return logprobs_of_all(
            self._parts_for(order, source).model,
            order.rows,
            temperature=inputs.temperature,
            max_token_len=inputs.algorithm.max_token_len,
            compute=inputs.algorithm.compute,
            ranks=self._ranks,
        )

    def _parts_for(self, order: Order, source: PreTrainedModel | None) -> ModelWithOptimizer:
        """This rank's part of the order's model, built anew unless only the numbers in it may differ."""
        use_threads(max(1, order.call.threads // self._ranks.size))
        fits = self._path == order.path and not (order.loads_weights and (order.adapter or self._is_adapted))
        if self._parts is None or not fits:
            self._parts = None
            model = new_model(order.path, device=self._ranks.device)
            if order.adapter:
                attach_adapter(model, order.adapter)
            shard(model, self._ranks)
            self._path, self._is_adapted = order.path, bool(order.adapter)
            self._parts = ModelWithOptimizer(model, build_optimizer(model, INITIAL))
        if order.loads_weights:
            distribute_weights(source, self._parts.model, self._ranks)
        return self._parts
