"""COMPLETIONS → REFERENCE LOGPROBS: what the frozen policy thinks of the sampled tokens."""
