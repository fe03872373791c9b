"""One policy update through the learner's own code: tokens per second, model FLOPs utilization (MFU), peak memory.

Weights, gradients and AdamW's moments are float32 and products are bfloat16, as the learner computes on a GPU. Whether
all weights can be trained on one device is computed first:

    16 bytes per parameter (weight, gradient, two moments) + 2 (copies for the products) + logits and activations

If that is more than 95 % of the device, LoRA (rank 16 on all linear layers) is trained instead, or, where peft is not
installed, the last layers that fit; `trains` in the figures says which.

MFU counts what the mathematics asks for: a forward pass, and the backward pass at twice that (at once that, where the
weights are frozen), with each prompt once; what is computed again to save memory is left out. It is taken against the
machine's own matrix product (`matrix_tflops`).
"""

import importlib.util

import torch
from transformers import PreTrainedModel

from functions.learner.config import LearnerConfig
from functions.learner.update import update_policy
from scripts.benchmarks.learner_update import made_rows
from scripts.gpu_check.figures import Figures, Timer
from scripts.gpu_check.machine import matrix_tflops
from scripts.gpu_check.plan import Section
from scripts.gpu_check.random_model import model_folder, random_model
from scripts.gpu_check.shapes import FULL_WORK, SHAPES, SMALL_WORK, Shape, Work
from shared.contracts.lora import LoraConfig
from shared.contracts.training_pass import TrainingPass
from shared.training.lora import initial_adapter
from shared.training.optimizer import build_optimizer, trainable_parameters

MICRO_BATCH_TOKENS = 8192
LORA_RANK = 16
SHARE_OF_DEVICE = 0.95
REPEATS = 3


def measure(section: Section, figures: Figures) -> None:
    """Choose what can be trained, update once to warm up, then measure updates."""
    shape, device = SHAPES[section.shape], torch.device(section.device)
    work, timer = SMALL_WORK if section.is_small else FULL_WORK, Timer(device)
    needed = full_training_bytes(shape, work)
    fits = device.type == "cpu" or needed <= SHARE_OF_DEVICE * torch.cuda.get_device_properties(device).total_memory
    figures.add(full_training_bytes=needed, num_parameters=shape.num_parameters)
    with model_folder(shape) as folder:
        model = random_model(folder, torch.float32, device)
    trains = "all weights" if fits else freeze_most(model)
    config = LearnerConfig(
        lr=1e-6,
        max_token_len=MICRO_BATCH_TOKENS,
        compute=TrainingPass(dtype=section.dtype, enable_gradient_checkpointing=not fits),
    )
    optimizer = build_optimizer(model, config)
    rows = made_rows(work.num_prompts, work.group_size, work.prompt_tokens, work.completion_tokens)
    figures.add(
        trains=trains,
        num_trained_parameters=sum(parameter.numel() for parameter in trainable_parameters(model).values()),
        micro_batch_tokens=MICRO_BATCH_TOKENS,
        gradient_checkpointing=not fits,
    )
    first = update_policy(model, optimizer, rows, config, 0)
    timer.reset_peak()
    seconds = timer.best(lambda: update_policy(model, optimizer, rows, config, 0), 1 if section.is_small else REPEATS)
    # Without gradients of frozen weights the backward pass is one product per weight and token instead of two.
    flops = shape.forward_flops(work) * (3 if fits else 2)
    reached = matrix_tflops(device)
    figures.add(
        update_s=seconds,
        row_tokens_per_s=work.num_row_tokens / seconds,
        computed_tokens_per_s=work.num_computed_tokens / seconds,
        tflops=flops / seconds / 1e12,
        matrix_tflops=reached,
        mfu=flops / seconds / 1e12 / reached,
        peak_bytes=timer.peak_bytes(),
        grad_norm=first.metrics["actor/grad_norm"],
    )
    figures.check("updates missing of one", 1.0 - first.num_updates, at_most=0.0)


def full_training_bytes(shape: Shape, work: Work) -> int:
    """Device memory for training all weights, in the learner's precision and micro-batches, as an estimate from above.

    Logits twice in bfloat16 (value and gradient) and once in float32; activations of recomputed layers: their inputs,
    and one layer's own; and 1 GiB for the device's context.
    """
    family = work.prompt_tokens + work.group_size * (work.completion_tokens - 1)
    num_families = max(1, min(work.num_prompts, MICRO_BATCH_TOKENS // family))
    num_logits = num_families * work.group_size * work.completion_tokens
    activations = num_families * family * (4 * shape.hidden * (shape.num_layers + 8) + 8 * shape.feed_forward)
    return 18 * shape.num_parameters + 8 * num_logits * shape.vocab_size + activations + 2**30


def freeze_most(model: PreTrainedModel) -> str:
    """Leave few weights to train, and say which."""
    if importlib.util.find_spec("peft") is not None:
        initial_adapter(model, LoraConfig(rank=LORA_RANK, alpha=2.0 * LORA_RANK))
        return f"LoRA, rank {LORA_RANK}, all linear layers"
    num_layers = max(1, len(model.model.layers) // 4)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for layer in model.model.layers[-num_layers:]:
        layer.requires_grad_(True)
    return f"the last {num_layers} layers (peft is not installed)"
