"""Generation for many sequences on one model, one token per sequence and step.

What sequences begin with alike is computed and kept once, sequences enter and leave between any two steps, and
what a sequence generates depends only on its prompt, its seed and the weights (in float32, up to rounding).

Shapes: B = running rows, V = vocabulary.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from functions.rollout.engine import (
    EngineStats,
    FinishedSequence,
    NextTurn,
    PartialSequence,
    SamplingParams,
    SequenceRequest,
)
from functions.rollout.torch_engine.batch import Batch
from functions.rollout.torch_engine.context import Context
from functions.rollout.torch_engine.sampling import sample
from functions.rollout.torch_engine.stop_strings import StopSearch
from shared.contracts.errors import InvalidInput
from shared.inference.decoder import decoder_for
from shared.inference.prefix_kv import KvLayout, PrefixKv
from shared.inference.prefix_tree import Segment, Sharing
from shared.modeling.loading import context_length, new_model
from shared.modeling.merged_weights import MergedWeights
from shared.modeling.tokenizer import Tokenizer


class TorchEngine:
    """The `Engine` port on a transformers causal model. It owns the model it is given."""

    def __init__(
        self,
        model: PreTrainedModel,
        load_tokenizer: Callable[[], Tokenizer] | None = None,
        *,
        sharing: Sharing | None = None,
        has_weights: bool = True,
    ) -> None:
        """`load_tokenizer` is called when stop strings are first asked for; without it there can be none. `sharing`
        says which common beginnings sequences share. Without weights, those of the model need not survive."""
        self._load_tokenizer = cache(load_tokenizer) if load_tokenizer else None
        self._model = model.eval().requires_grad_(False)
        self._decoder = decoder_for(model, has_weights=has_weights)
        self._weights = MergedWeights(model)
        self._context_tokens = context_length(model.config)
        self._vocab_size: int = model.get_input_embeddings().num_embeddings
        self._batch = Batch(model.device)
        self._context = Context(self._decoder, sharing)

    @classmethod
    def for_model(
        cls,
        path_or_hub_id: str | Path,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> "TorchEngine":
        """An engine for a model's architecture; its weights are undefined until the first `load`.

        Raises UnknownModel, UnsupportedModel.
        """
        model = new_model(path_or_hub_id, dtype, device)
        return cls(model, partial(Tokenizer.load, path_or_hub_id), has_weights=False)

    @property
    def num_running(self) -> int:
        """See `Engine`."""
        return len(self._batch)

    @property
    def layout(self) -> KvLayout:
        """See `Engine`."""
        return self._decoder.layout

    def load(self, weights: bytes | memoryview) -> None:
        """See `Engine`."""
        self._refuse_while_running()
        self._context.drop_prefixes()
        self._weights.load(weights)

    def adapt(self, adapter: bytes | memoryview | None) -> None:
        """See `Engine`."""
        self._refuse_while_running()
        self._context.drop_prefixes()
        self._weights.merge(adapter)

    def hold_prefixes(self, prefixes: Sequence[PrefixKv]) -> None:
        """See `Engine`."""
        self._context.hold_prefixes(prefixes)

    def drop_prefixes(self) -> None:
        """See `Engine`."""
        self._context.drop_prefixes()

    @torch.inference_mode()
    def kv_of(self, row_uid: str, sample: int) -> PrefixKv:
        """See `Engine`."""
        row = self._batch.index_of(row_uid, sample)
        if row is None:
            raise KeyError(f"row {row_uid} sample {sample} does not run")
        return self._context.kv_of(self._batch, row)

    def stats(self) -> EngineStats:
        """See `Engine`."""
        work = self._context.take_work()
        return EngineStats(
            num_running=self.num_running,
            context_tokens=int(self._batch.counts.positions.sum()),
            prefill_tokens=work.computed_tokens,
            reused_tokens=work.reused_tokens,
            prefill_s=work.seconds,
        )

    @torch.inference_mode()
    def add(
        self, requests: Sequence[SequenceRequest], params: SamplingParams, next_turn: NextTurn | None = None
    ) -> None:
        """See `Engine`."""
        if not requests:
            return
        for request in requests:
            self._check(request, params)
        new_search = self._stop_search(params.stop)
        prefixes = [(request.prompt_token_ids + request.generated.token_ids)[:-1] for request in requests]
        placement = self._context.compute(prefixes, self._running_like(requests))
        first_row = self.num_running
        self._batch.add(requests, placement.shared, params, next_turn, new_search)
        self._context.enter(self._batch, placement, first_row)

    @torch.inference_mode()
    def step(self) -> list[FinishedSequence]:
        """See `Engine`."""
        if not self.num_running:
            return []
        state = self._batch.state
        attention = self._context.attention(self._batch)
        logits = self._decoder.decode(state.pending, state.positions, attention)
        token_ids, logprobs, processed_logprobs, is_eos = self._sample(logits)
        self._batch.record(token_ids, logprobs, processed_logprobs)
        return self._end_turns(is_eos)

    @torch.inference_mode()
    def abort(self, ids: Collection[tuple[str, int]] | None = None) -> list[PartialSequence]:
        """See `Engine`."""
        rows = [row for row in range(self.num_running) if ids is None or self._batch.id_of(row) in ids]
        partials = [self._batch.partial(row) for row in rows]
        if len(rows) == self.num_running:
            self._context.clear(self._batch)
        else:
            self._context.remove(self._batch, rows)
        return partials

    def _refuse_while_running(self) -> None:
        if self.num_running:
            raise RuntimeError(f"{self.num_running} sequences still run on the old weights: abort them first")

    def _running_like(self, requests: Sequence[SequenceRequest]) -> list[PrefixKv]:
        """What is computed of running sequences whose prompt new ones have, as far as it is not shared anyway."""
        wanted = {request.prompt_token_ids for request in requests}
        shared = self._batch.shared()
        alike = {
            self._batch.prompt(row): row
            for row in range(self.num_running)
            if self._batch.prompt(row) in wanted and _end(shared[row]) < len(self._batch.prompt(row)) - 1
        }
        return [self._context.kv_of(self._batch, row) for row in alike.values()]

    def _sample(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Token ids, logprobs, processed logprobs and whether each token is an EOS of its row, all `[B]`."""
        batch = self._batch
        draws, num_generated = batch.next_draws(), batch.state.num_generated
        shortest = int(batch.counts.num_generated.min())
        sampled: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for params, rows in batch.groups():
            token_ids, logprobs, processed = sample(logits[rows], draws[rows], num_generated[rows], params, shortest)
            sampled.append((token_ids, logprobs, processed, _is_any(token_ids, params.eos_token_ids)))
        if len(sampled) == 1:
            return sampled[0]
        order = torch.cat([rows for _, rows in batch.groups() if isinstance(rows, Tensor)]).argsort()
        token_ids, logprobs, processed, is_eos = (torch.cat(parts)[order] for parts in zip(*sampled, strict=True))
        return token_ids, logprobs, processed, is_eos

    def _end_turns(self, is_eos: Tensor) -> list[FinishedSequence]:
        """Begins the next turn of the rows that have one, and takes the completed rows out of the batch."""
        stops = self._batch.completed_stops()
        counts = self._batch.counts
        # The one look at what the device computed that a step cannot do without.
        at_eos = set(is_eos.nonzero().flatten().tolist()) if self._batch.can_see_eos() else set()
        ended = (counts.num_generated >= counts.limits).nonzero()[0].tolist()
        finished: dict[int, FinishedSequence] = {}
        insertions: dict[int, tuple[int, ...]] = {}
        for row in sorted({*at_eos, *ended, *stops}):
            has_eos = row in at_eos
            stopped = has_eos or row in stops
            inserted = self._batch.insertion(row, None if has_eos else stops[row]) if stopped else ()
            if inserted and self._batch.fits(row, len(inserted)):
                insertions[row] = inserted
            else:
                finished[row] = self._batch.finished(row, "stop" if stopped and not inserted else "length")
        if insertions:
            self._extend(insertions)
        if finished:
            self._context.remove(self._batch, list(finished))
        return list(finished.values())

    def _extend(self, insertions: Mapping[int, tuple[int, ...]]) -> None:
        """Appends tokens that nobody sampled to some rows."""
        for inserted in insertions.values():
            if not self._are_known(inserted):
                raise InvalidInput(f"Tokens {inserted} are not all in the vocabulary of {self._vocab_size}.")
        self._context.extend(self._batch, insertions)

    def _stop_search(self, stop: tuple[str, ...]) -> Callable[[], StopSearch] | None:
        """Makes what finds these strings in the text of a sequence; None if there are none."""
        if not stop:
            return None
        if self._load_tokenizer is None:
            raise InvalidInput("Stop strings need a tokenizer, and this engine was made without one.")
        decode = partial(self._load_tokenizer().decode, skip_special_tokens=False)
        return lambda: StopSearch(stop, decode)

    def _are_known(self, token_ids: Sequence[int]) -> bool:
        return all(0 <= token_id < self._vocab_size for token_id in token_ids)

    def _check(self, request: SequenceRequest, params: SamplingParams) -> None:
        name = f"row {request.row_uid} sample {request.sample}"
        prompt, generated = request.prompt_token_ids, request.generated
        length = len(generated.token_ids)
        if not prompt:
            raise InvalidInput(f"The prompt of {name} has no tokens.")
        if not self._are_known(prompt + generated.token_ids):
            raise InvalidInput(
                f"The tokens of {name} are not all in the vocabulary of {self._vocab_size}: "
                "was the prompt encoded with the tokenizer of another model?"
            )
        if len(prompt) + params.max_tokens > self._context_tokens:
            raise InvalidInput(
                f"The prompt of {name} has {len(prompt)} tokens; with max_tokens {params.max_tokens} that exceeds "
                f"the model's context of {self._context_tokens}. Shorten the prompt or lower max_tokens."
            )
        if {len(generated.logprobs), len(generated.processed_logprobs), len(generated.loss_mask)} != {length}:
            raise InvalidInput(f"{name} resumes {length} tokens with another number of logprobs or of its loss mask.")
        has_eos = length > 0 and generated.loss_mask[-1] and generated.token_ids[-1] in params.eos_token_ids
        if length >= params.max_tokens or has_eos:
            raise InvalidInput(f"{name} is already complete with its {length} tokens.")


def _is_any(token_ids: Tensor, wanted: tuple[int, ...]) -> Tensor:
    """Whether each of `token_ids` is one of a few, without sending these to the device."""
    found = torch.zeros_like(token_ids, dtype=torch.bool)
    for token_id in wanted:
        found |= token_ids == token_id
    return found


def _end(segment: Segment | None) -> int:
    return segment.end if segment else 0
