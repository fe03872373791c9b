"""The prefill stage: computes the prefix KV of a batch's distinct prompts once, for all actors."""
