"""Sizes and operations against published and hand-counted numbers."""

import pytest
import torch

from scripts.gpu_check.random_model import model_folder, random_model
from scripts.gpu_check.shapes import QWEN_0_5B, QWEN_7B, TINY, Work


def test_parameters_are_those_of_the_published_models() -> None:
    assert QWEN_0_5B.num_parameters == 494_032_768
    assert QWEN_7B.num_parameters == 7_615_616_512


def test_parameters_are_those_of_the_model_that_is_made() -> None:
    with model_folder(TINY) as folder:
        model = random_model(folder, torch.float32, torch.device("cpu"))
    assert sum(parameter.numel() for parameter in model.parameters()) == TINY.num_parameters


def test_pairs_are_those_that_a_loop_counts() -> None:
    work = Work(num_prompts=3, group_size=2, prompt_tokens=5, completion_tokens=4)
    in_prompt = sum(position + 1 for position in range(5))
    of_completion = sum(5 + position + 1 for position in range(3))
    assert work.num_attended_pairs == 3 * (in_prompt + 2 * of_completion)
    assert work.num_computed_tokens == 3 * (5 + 2 * 3)
    assert work.num_row_tokens == 3 * 2 * 9


def test_operations_are_two_per_weight_and_token_where_attention_is_small() -> None:
    work = Work(num_prompts=1, group_size=1, prompt_tokens=1, completion_tokens=2)
    weights = QWEN_7B.layer_weights * 2 + QWEN_7B.vocab_size * QWEN_7B.hidden * 2
    assert QWEN_7B.forward_flops(work) == pytest.approx(2.0 * weights, rel=1e-3)
