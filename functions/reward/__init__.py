"""The reward stage: completions in, one finite reward for each out."""
