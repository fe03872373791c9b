"""How many ranks a replica has."""

import torch

from shared.service.settings import FunctionSettings, SettingsInvalid


def num_ranks(settings: FunctionSettings) -> int:
    """As many as it has GPUs, one without any, unless the settings say otherwise. Raises ``SettingsInvalid``."""
    num_gpus = torch.cuda.device_count()
    if settings.num_ranks is None:
        return max(1, num_gpus)
    if 0 < num_gpus < settings.num_ranks:
        raise SettingsInvalid(
            f"RLHFLESS_NUM_RANKS is {settings.num_ranks}: this replica has {num_gpus} GPUs, and a rank needs one "
            "to itself; lower it, or ask for more GPUs in the manifest"
        )
    return settings.num_ranks
