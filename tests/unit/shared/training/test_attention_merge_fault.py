"""A fault of torch that the shared pass must not have: attention parts merged by the flash kernel's log-sum-exp."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from shared.training.forward import completion_logprobs, trained_logits
from shared.training.prompt_sharing import ATTENTION_NAME
from tests.unit.functions.learner.builders import make_row, relative_gap, tiny_model

HEADS, DIM, PROMPT, OWN = 2, 16, 8, 8
SHARPNESS = 2.0
"""Of the queries; where attention is nearly uniform its gradients are too small to show anything."""


def states(length: int, seed: int) -> Tensor:
    return torch.randn(1, HEADS, length, DIM, generator=torch.Generator().manual_seed(seed))


def flash(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool) -> tuple[Tensor, Tensor]:
    outputs, log_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, is_causal=is_causal
    )[:2]
    return outputs, log_sums


def merged(query: Tensor, prompt: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor]) -> Tensor:
    """Two-part softmax: each part's output, weighted by its share of the whole sum."""
    parts = [flash(query, *prompt, is_causal=False), flash(query, *own, is_causal=True)]
    total = torch.logaddexp(parts[0][1], parts[1][1])
    return sum(outputs * (log_sums - total).exp()[..., None] for outputs, log_sums in parts)


def in_one(query: Tensor, prompt: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor]) -> Tensor:
    mask = torch.cat([torch.ones(OWN, PROMPT, dtype=torch.bool), torch.ones(OWN, OWN, dtype=torch.bool).tril()], 1)
    keys, values = (torch.cat(pair, 2) for pair in zip(prompt, own, strict=True))
    return scaled_dot_product_attention(query, keys, values, attn_mask=mask)


def test_merging_by_the_kernels_log_sum_exp_gives_right_outputs_and_wrong_gradients() -> None:
    """The kernel's backward pass takes the log-sum-exp for a constant. No error, no warning: autograd even says that
    it has a gradient."""
    results = []
    for attend in (merged, in_one):
        leaves = [
            SHARPNESS * states(OWN, 0),
            *(states(n, seed) for seed, n in enumerate((PROMPT, PROMPT, OWN, OWN), start=1)),
        ]
        for leaf in leaves:
            leaf.requires_grad_()
        query, *keys_and_values = leaves
        outputs = attend(query, tuple(keys_and_values[:2]), tuple(keys_and_values[2:]))
        (outputs * states(OWN, 9)).sum().backward()
        results.append((outputs.detach(), [leaf.grad for leaf in leaves]))
    (merged_outputs, merged_gradients), (outputs, gradients) = results

    torch.testing.assert_close(merged_outputs, outputs, atol=1e-5, rtol=1e-5)
    query_gap, prompt_key_gap, prompt_value_gap, *_ = (
        relative_gap(wrong, right) for wrong, right in zip(merged_gradients, gradients, strict=True)
    )
    assert prompt_value_gap < 1e-5
    assert min(query_gap, prompt_key_gap) > 0.3


def test_query_and_key_gradients_of_the_shared_pass_are_those_of_the_plain_pass() -> None:
    """The same comparison on the pass itself, for the projections whose gradient the fault would spoil."""
    model = tiny_model()
    rows = [make_row("a", s, prompt=(1, 2, 3, 4, 5), completion=(5 + s, 6, 7, 8)) for s in range(3)]
    names = [name for name, _ in model.named_parameters() if "q_proj" in name or "k_proj" in name]
    assert len(names) == 4
    gradients = []
    for share_prompts in (True, False):
        model.zero_grad()
        with trained_logits(model, share_prompts=share_prompts) as logits_of:
            assert (model.config._attn_implementation == ATTENTION_NAME) == share_prompts
            logprobs = completion_logprobs(logits_of, rows, 1.0)
            (logprobs * torch.linspace(-1, 1, 12).view(3, 4)).sum().backward()
        gradients.append({name: model.get_parameter(name).grad for name in names})
    for name in names:
        assert relative_gap(gradients[0][name], gradients[1][name]) < 1e-5, name
