"""The rollout engine on plain PyTorch, over the forward passes of `shared.inference`.

engine.py            add, step, abort: the flow of one decoded token, and what follows the end of a turn
batch.py             the running sequences, one row each
context.py           what they attend to, and what is computed when they enter
  shared_prefixes.py what several of them begin with, kept once
  row_cache.py       what is their own
attention.py         attention of one new token per row over both
  attention_part.py  over one of them, and how the parts become the whole
sampling.py          logits and uniform numbers to tokens and logprobs
stop_strings.py      the token that completes a stop string
"""

from functions.rollout.torch_engine.engine import TorchEngine

__all__ = ["TorchEngine"]
