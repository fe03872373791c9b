"""How long a replica takes for a token, learnt from what it did.

RLHFless (arXiv 2602.22718, section on actor scaling) profiles the time per output token with dummy batches before the
run. A decode step reads all weights once (``base_s``), computes each running sequence (``per_sequence_s``) and reads
all keys and values (``per_context_token_s``), so its seconds are an affine function of both:

    seconds per step = base_s + per_sequence_s · running + per_context_token_s · context tokens

None of the three can be negative, and steps of one run hardly tell them apart: sequences and context grow together. So
the fit is a non-negative least-squares fit of relative errors which pulls every coefficient towards the prior, as if
the prior had been seen a few times. Without observations it is the prior; with a single one it is the prior scaled to
it; with many the prior does not count. A model that is trained on changes its lengths, not its speed, but machines and
neighbours change: old observations are forgotten exponentially by the one who keeps them (``remember``).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

PRIOR_WEIGHT = 0.05
"""Weight of the prior against one observation, per coefficient."""
FORGETTING = 0.9
"""Weight of what was known before, at each new set of observations: half is forgotten in seven steps."""
NEGLIGIBLE = 1e-3
"""Weight below which an observation is dropped."""
NO_TIME_S = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeObservation:
    """A stretch of decoding at nearly constant load, on one replica."""

    num_steps: int
    num_sequences: float
    """Running ones, the mean over the steps."""
    context_tokens: float
    """Prompt and generated tokens of all running sequences together, the mean over the steps."""
    seconds: float
    """Of all steps."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeProfile:
    """The speed of one replica, with its threads or GPUs, and what it has room for."""

    base_s: float
    """Seconds of a decode step, whatever runs in it."""
    per_sequence_s: float
    """Seconds that each running sequence adds to a decode step."""
    per_context_token_s: float
    """Seconds that each token of context adds to a decode step."""
    prefill_token_s: float
    """Seconds for a token of a prompt."""
    kv_capacity_tokens: int | None = None
    """Tokens whose keys and values a replica holds; ``None`` where that is no limit."""
    max_num_sequences: int = 256
    """Sequences that a replica decodes at once."""
    kv_bytes_per_token: int = 0
    """0 where it is not known."""
    preempts: bool = False
    """Whether the engine lets in more than it can finish, and pushes some out as they grow (vLLM), to compute their
    keys and values again later; else sequences wait outside until there is room."""

    def step_seconds(self, num_sequences: float, context_tokens: float) -> float:
        """Seconds of one decode step."""
        return self.base_s + self.per_sequence_s * num_sequences + self.per_context_token_s * context_tokens


def fit(observations: Sequence[DecodeObservation], prior: DecodeProfile) -> DecodeProfile:
    """The profile that explains the observations; what they do not tell is the prior's.

    Minimises ``sum w (predicted / seen - 1)² + pull (scale-free distance to the prior)²`` over non-negative
    coefficients, exactly: of the eight sets of coefficients that are zero, the best one that has no negative.
    """
    seen = [one for one in observations if one.num_steps > 0 and one.seconds > 0 and one.weight > 0]
    if not seen:
        return prior
    steps = np.array([one.seconds / one.num_steps for one in seen])
    weights = np.sqrt([one.weight for one in seen])
    loads = np.array([(1.0, one.num_sequences, one.context_tokens) for one in seen])
    start = np.array([prior.base_s, prior.per_sequence_s, prior.per_context_token_s])
    # The prior knows the proportions; the overall speed of this machine is measured.
    start = start * float(np.exp(np.average(np.log(steps / np.maximum(loads @ start, NO_TIME_S)), weights=weights**2)))
    # Coefficients as multiples of what they contribute at the mean load make them comparable.
    units = float(np.average(steps, weights=weights**2)) / np.maximum(np.average(loads, axis=0, weights=weights**2), 1)
    rows = (loads * units) * (weights / steps)[:, None]
    pull = np.sqrt(PRIOR_WEIGHT) * np.eye(3)
    matrix = np.vstack([rows, pull])
    target = np.concatenate([weights, np.sqrt(PRIOR_WEIGHT) * start / units])
    base, per_sequence, per_context = (float(value) for value in _non_negative(matrix, target) * units)
    return replace(prior, base_s=base, per_sequence_s=per_sequence, per_context_token_s=per_context)


def remember(
    known: Sequence[DecodeObservation], new: Sequence[DecodeObservation], most: int = 512
) -> tuple[DecodeObservation, ...]:
    """``known`` observations, weighing a little less, and the ``new`` ones; at most so many, the latest."""
    aged = (replace(one, weight=one.weight * FORGETTING) for one in known) if new else iter(known)
    kept = [one for one in aged if one.weight >= NEGLIGIBLE]
    return (*kept, *new)[-most:]


def prefill_speed(tokens: int, seconds: float, prior: DecodeProfile) -> DecodeProfile:
    """The profile with the measured seconds per prefilled token, if any was prefilled."""
    return replace(prior, prefill_token_s=seconds / tokens) if tokens > 0 and seconds > 0 else prior


def _non_negative(matrix: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """argmin |matrix x - target| over x >= 0, for the few columns there are: every support is tried."""
    num = matrix.shape[1]
    best, least = np.zeros(num), float(target @ target)
    for size in range(1, num + 1):
        for support in itertools.combinations(range(num), size):
            columns = list(support)
            solution, *_ = np.linalg.lstsq(matrix[:, columns], target, rcond=None)
            if (solution < 0).any():
                continue
            residual = matrix[:, columns] @ solution - target
            loss = float(residual @ residual)
            if loss < least:
                least = loss
                best = np.zeros(num)
                best[columns] = solution
    return best
