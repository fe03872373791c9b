"""The rollout stage: samples the completions of prompts, with their logprobs."""
