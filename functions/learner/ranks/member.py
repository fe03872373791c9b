"""What every rank does with an order, rank 0 included: all do the same at the same time, each with its part."""

from functions.learner.call_config import config_of
from functions.learner.config import LearnerConfig
from functions.learner.ranks.order import UpdateOrder
from functions.learner.ranks.process_group import ProcessRanks
from functions.learner.ranks.sharded_model import ModelWithOptimizer, collect, distribute, shard
from functions.learner.time_budget import UNLIMITED, Budget
from functions.learner.update import UpdateResult, update_policy
from shared.modeling.loading import new_model
from shared.modeling.threads import use_threads
from shared.training.lora import attach_adapter


class Member:
    """One rank, with its part of the model. Lives as long as its group; what fails ends both."""

    def __init__(self, ranks: ProcessRanks) -> None:
        self._ranks = ranks
        self._path = ""
        self._adapted = False
        self._parts: ModelWithOptimizer | None = None

    def update(
        self, order: UpdateOrder, source: ModelWithOptimizer | None = None, budget: Budget = UNLIMITED
    ) -> UpdateResult:
        """Make the update. Rank 0 alone has a ``source``, the model in a piece, which is changed; and a ``budget``."""
        use_threads(max(1, order.call.threads // self._ranks.size))
        config = config_of(order.call)
        parts = self._parts_for(order, config)
        if order.is_loading:
            distribute(source, parts, order.num_updates, self._ranks)
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

    def _parts_for(self, order: UpdateOrder, config: LearnerConfig) -> ModelWithOptimizer:
        """This rank's part of the model, with what it held before where only its numbers may differ."""
        fits = self._path == order.path and not (order.is_loading and (order.adapter or self._adapted))
        if self._parts is None or not fits:
            self._parts = None
            model = new_model(order.path, device=self._ranks.device)
            if order.adapter:
                attach_adapter(model, order.adapter)
                model.to(self._ranks.device)
            self._path, self._adapted = order.path, bool(order.adapter)
            self._parts = shard(model, config, self._ranks)
        return self._parts
