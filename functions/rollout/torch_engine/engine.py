"""Generation for many sequences on one model, one token per sequence and step.

A group's prompt is computed once and copied to its rows, sequences enter and leave between any two steps, and
what a sequence generates depends only on its prompt, its seed and the weights (in float32, up to rounding).

Shapes: B = running rows, V = vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from functions.rollout.engine import FinishedSequence, NextTurn, PartialSequence, SamplingParams, SequenceRequest
from functions.rollout.torch_engine.attention import DecodeAttention, ExtendAttention, PrefillAttention
from functions.rollout.torch_engine.batch import Batch
from functions.rollout.torch_engine.kv_cache import KVCache
from functions.rollout.torch_engine.prefill import plan_extensions, plan_prefill
from functions.rollout.torch_engine.sampling import sample
from functions.rollout.torch_engine.stop_strings import StopSearch
from shared.contracts.errors import InvalidInput
from shared.inference.decoder import decoder_for
from shared.inference.prefix_kv import KvLayout
from shared.modeling.loading import context_length, new_model
from shared.modeling.merged_weights import MergedWeights
from shared.modeling.randomness import uniforms
from shared.modeling.tokenizer import Tokenizer


class TorchEngine:
    """The `Engine` port on a transformers causal model. It owns the model it is given."""

    def __init__(self, model: PreTrainedModel, load_tokenizer: Callable[[], Tokenizer] | None = None) -> None:
        """`load_tokenizer` is called when stop strings are first asked for; without it there can be none."""
        self._load_tokenizer = cache(load_tokenizer) if load_tokenizer else None
        self._model = model.eval().requires_grad_(False)
        self._weights = MergedWeights(model)
        self._decoder = decoder_for(model)
        self._context_tokens = context_length(model.config)
        self._vocab_size: int = model.get_input_embeddings().num_embeddings
        self._batch = Batch(model.device)
        self._cache = KVCache(
            self._decoder.layout.num_layers,
            self._decoder.layout.num_kv_heads,
            self._decoder.layout.head_dim,
            model.dtype,
            model.device,
        )

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
        return cls(new_model(path_or_hub_id, dtype, device), partial(Tokenizer.load, path_or_hub_id))

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
        self._weights.load(weights)

    def adapt(self, adapter: bytes | memoryview | None) -> None:
        """See `Engine`."""
        self._refuse_while_running()
        self._weights.merge(adapter)

    @torch.inference_mode()
    def add(
        self, requests: Sequence[SequenceRequest], params: SamplingParams, next_turn: NextTurn | None = None
    ) -> None:
        """See `Engine`."""
        if not requests:
            return
        for request in requests:
            self._check(request, params)
        first_row = self.num_running
        self._batch.add(requests, params, next_turn, self._stop_search(params.stop))
        prefixes = [(request.prompt_token_ids + request.generated.token_ids)[:-1] for request in requests]
        longest = max(len(prefix) for prefix in prefixes)
        self._cache.reserve(self.num_running, longest + 1, self._batch.max_slots)
        for one_pass in plan_prefill(prefixes, first_row):
            token_ids = pad_sequence([torch.tensor(prefix) for prefix in one_pass.prefixes], batch_first=True)
            positions = torch.arange(token_ids.shape[1]).expand_as(token_ids)
            attention = PrefillAttention(
                self._cache,
                torch.tensor(one_pass.rows, device=self._model.device),
                torch.tensor(one_pass.sources, device=self._model.device),
                len(one_pass.prefixes),
            )
            self._decoder.prefill(token_ids.to(self._model.device), positions.to(self._model.device), attention)

    @torch.inference_mode()
    def step(self) -> list[FinishedSequence]:
        """See `Engine`."""
        if not self.num_running:
            return []
        state = self._batch.state
        shortest, longest = (int(position) for position in torch.aminmax(state.positions))
        self._cache.reserve(self.num_running, longest + 1, self._batch.max_slots)
        attention = DecodeAttention(self._cache, state.positions, shortest, longest)
        logits = self._decoder.decode(state.pending, state.positions, attention)
        token_ids, logprobs, processed_logprobs, is_eos = self._sample(logits)
        self._batch.record(token_ids, logprobs, processed_logprobs)
        return self._end_turns(is_eos)

    @torch.inference_mode()
    def abort(self) -> list[PartialSequence]:
        """See `Engine`."""
        partials = [self._batch.partial(row) for row in range(self.num_running)]
        self._batch.clear()
        return partials

    def _refuse_while_running(self) -> None:
        if self.num_running:
            raise RuntimeError(f"{self.num_running} sequences still run on the old weights: abort them first")

    def _sample(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Token ids, logprobs, processed logprobs and whether each token is an EOS of its row, all `[B]`."""
        state = self._batch.state
        draws = uniforms(state.seeds, state.num_generated)
        token_ids = torch.empty_like(state.pending)
        logprobs, processed_logprobs = torch.empty_like(state.logprobs[:, 0]), torch.empty_like(state.logprobs[:, 0])
        is_eos = torch.zeros_like(token_ids, dtype=torch.bool)
        for params, rows in self._batch.groups():
            ids, logprobs[rows], processed_logprobs[rows] = sample(
                logits[rows], draws[rows], state.num_generated[rows], params
            )
            token_ids[rows] = ids
            is_eos[rows] = torch.isin(ids, ids.new_tensor(params.eos_token_ids))
        return token_ids, logprobs, processed_logprobs, is_eos

    def _end_turns(self, is_eos: Tensor) -> list[FinishedSequence]:
        """Begins the next turn of the rows that have one, and takes the completed rows out of the batch."""
        state, stops = self._batch.state, self._batch.completed_stops()
        ended = (is_eos | (state.num_generated >= state.limits)).nonzero().flatten().tolist()
        finished: dict[int, FinishedSequence] = {}
        insertions: dict[int, tuple[int, ...]] = {}
        for row in sorted({*ended, *stops}):
            has_eos = bool(is_eos[row])
            stopped = has_eos or row in stops
            inserted = self._batch.insertion(row, None if has_eos else stops[row]) if stopped else ()
            if inserted and self._batch.fits(row, len(inserted)):
                insertions[row] = inserted
            else:
                finished[row] = self._batch.finished(row, "stop" if stopped and not inserted else "length")
        if insertions:
            self._extend(insertions)
        if finished:
            self._cache.move(*self._batch.remove(list(finished)))
        return list(finished.values())

    def _extend(self, insertions: Mapping[int, tuple[int, ...]]) -> None:
        """Appends tokens that nobody sampled to some rows."""
        for inserted in insertions.values():
            if not self._are_known(inserted):
                raise InvalidInput(f"Tokens {inserted} are not all in the vocabulary of {self._vocab_size}.")
        device = self._model.device
        extensions = self._batch.insert(insertions)
        self._cache.reserve(self.num_running, int(self._batch.state.positions.max()) + 1, self._batch.max_slots)
        for group in plan_extensions(extensions):
            token_ids = pad_sequence([torch.tensor(entry.token_ids) for entry in group], batch_first=True).to(device)
            lengths = torch.tensor([len(entry.token_ids) for entry in group], device=device)
            starts = torch.tensor([entry.start for entry in group], device=device)
            steps = torch.arange(token_ids.shape[1], device=device).minimum(lengths[:, None] - 1)
            rows = torch.tensor([entry.row for entry in group], device=device)
            positions = starts[:, None] + steps
            self._decoder.prefill(token_ids, positions, ExtendAttention(self._cache, rows, positions, lengths))

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
