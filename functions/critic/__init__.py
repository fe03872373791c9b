"""COMPLETIONS → VALUES: what reward is still to come, per token; and its own update."""
