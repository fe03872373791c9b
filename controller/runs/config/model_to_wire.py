"""What every stage that runs a model is told of the config's ``model`` section, as contracts."""

from controller.runs.config.run_config import RunConfig
from shared.contracts.lora import LoraConfig
from shared.contracts.training_pass import TrainingPass


def lora_config(config: RunConfig) -> LoraConfig | None:
    """The policy's adapter; ``None`` where all weights are trained."""
    model = config.model
    if model.lora_rank == 0:
        return None
    return LoraConfig(
        rank=model.lora_rank, alpha=model.lora_alpha, target_modules=model.target_modules, seed=config.trainer.seed
    )


def training_pass(config: RunConfig) -> TrainingPass:
    """How passes are computed, in whichever stage."""
    return TrainingPass(
        enable_gradient_checkpointing=config.model.enable_gradient_checkpointing, dtype=config.model.dtype
    )
