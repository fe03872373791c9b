"""The models and the work that are measured, by size alone, and the floating-point operations that they take. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A Qwen2 model by its sizes. Its weights are random: what they say does not change how long they take."""

    name: str
    vocab_size: int
    hidden: int
    feed_forward: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    tied: bool
    """Whether input and output embeddings are one matrix."""
    context: int = 4096

    @property
    def head_dim(self) -> int:
        """Size of one head."""
        return self.hidden // self.num_heads

    @property
    def layer_weights(self) -> int:
        """Weights of all layers' matrices: queries and outputs, keys and values, and the three of the feed-forward."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.num_kv_heads * self.head_dim
        return self.num_layers * (attention + 3 * self.hidden * self.feed_forward)

    @property
    def num_parameters(self) -> int:
        """All parameters, tied ones once: matrices, biases of queries, keys and values, and norms."""
        biases = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        vectors = self.num_layers * (biases + 2 * self.hidden) + self.hidden
        return self.layer_weights + vectors + self.vocab_size * self.hidden * (1 if self.tied else 2)

    def forward_flops(self, work: "Work") -> float:
        """Operations of one forward pass over the work's tokens, each distinct prompt once.

        2 per weight and token in the layers, 2 per weight of the output matrix and predicted token, and in every layer
        4 per query head, head dimension and pair of tokens of which one sees the other (scores and values).
        """
        layers = 2.0 * self.layer_weights * work.num_computed_tokens
        output = 2.0 * self.hidden * self.vocab_size * work.num_completion_tokens
        attention = 4.0 * self.num_layers * self.num_heads * self.head_dim * work.num_attended_pairs
        return layers + output + attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Groups of completions, all of the same lengths."""

    num_prompts: int
    group_size: int
    prompt_tokens: int
    completion_tokens: int

    @property
    def num_completions(self) -> int:
        """Completions of all prompts."""
        return self.num_prompts * self.group_size

    @property
    def num_completion_tokens(self) -> int:
        """Tokens to sample, or to train on."""
        return self.num_completions * self.completion_tokens

    @property
    def num_row_tokens(self) -> int:
        """Prompt and completion of every row, as a pass without sharing computes them."""
        return self.num_completions * (self.prompt_tokens + self.completion_tokens)

    @property
    def num_computed_tokens(self) -> int:
        """Tokens that a pass with shared prompts reads: a completion's last one predicts nothing."""
        return self.num_prompts * self.prompt_tokens + self.num_completions * (self.completion_tokens - 1)

    @property
    def num_attended_pairs(self) -> int:
        """Pairs of a token and one that it sees, itself included, with every prompt once."""
        read = self.completion_tokens - 1
        in_prompt = self.prompt_tokens * (self.prompt_tokens + 1) // 2
        of_completion = read * self.prompt_tokens + read * (read + 1) // 2
        return self.num_prompts * (in_prompt + self.group_size * of_completion)


QWEN_0_5B = Shape(
    name="0.5b",
    vocab_size=151936,
    hidden=896,
    feed_forward=4864,
    num_layers=24,
    num_heads=14,
    num_kv_heads=2,
    tied=True,
)
QWEN_7B = Shape(
    name="7b",
    vocab_size=152064,
    hidden=3584,
    feed_forward=18944,
    num_layers=28,
    num_heads=28,
    num_kv_heads=4,
    tied=False,
)
TINY = Shape(
    name="tiny",
    vocab_size=512,
    hidden=64,
    feed_forward=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    tied=True,
)
SHAPES = {shape.name: shape for shape in (QWEN_0_5B, QWEN_7B, TINY)}

FULL_WORK = Work(num_prompts=8, group_size=8, prompt_tokens=512, completion_tokens=256)
SMALL_WORK = Work(num_prompts=2, group_size=2, prompt_tokens=16, completion_tokens=8)
