"""The rollout engine on plain PyTorch, over the forward passes of `shared.inference`.

engine.py        add, step, abort: the flow of one decoded token, and what follows the end of a turn
batch.py         the running sequences, one row each
prefill.py       which prefixes are computed, together and for which rows
sampling.py      logits and uniform numbers to tokens and logprobs
stop_strings.py  the token that completes a stop string
decoder.py       which of the two forward passes a model gets
  llama.py         the direct one, over the layers of Llama-like models
  generic.py       any other causal model, through transformers' attention interface
attention.py     attention over the rows' keys and values, for both
kv_cache.py      where these lie
"""

from functions.rollout.torch_engine.engine import TorchEngine

__all__ = ["TorchEngine"]
