"""Equal bits on GPUs: where they are asked for, a replay of a step reproduces its digest there too.

On the CPU it always does. Otherwise a replay may come out differently by rounding, which is harmless: nobody is told of
a version before it is stored, so the one that is published is the only one there is.
"""

from collections.abc import Mapping

import torch

from shared.service.settings import SettingsInvalid

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
DETERMINISTIC_WORKSPACES = (":4096:8", ":16:8")


def use_deterministic_algorithms(environment: Mapping[str, str]) -> None:
    """Have torch refuse every operation that may give other bits the next time. Raises ``SettingsInvalid``."""
    if torch.cuda.is_available() and environment.get(WORKSPACE) not in DETERMINISTIC_WORKSPACES:
        raise SettingsInvalid(
            f"RLHFLESS_DETERMINISTIC is 1 and needs {WORKSPACE} to be one of {', '.join(DETERMINISTIC_WORKSPACES)}: "
            "set both, or neither"
        )
    torch.use_deterministic_algorithms(True)
