"""Forward passes of causal models for generation, and the keys and values of prefixes that they begin from.

decoder.py           which of the two forward passes a model gets
  llama.py           the direct one, over the layers of Llama-like models
  generic.py         any other causal model, through transformers' attention interface
attention.py         what a pass calls once per layer, and attention of more tokens after a past
prefix_kv.py         keys and values of a prefix, and what makes them exchangeable
prefix_tree.py       where several prefixes begin alike
prefix_computing.py  keys and values of several prefixes, common beginnings once
"""
