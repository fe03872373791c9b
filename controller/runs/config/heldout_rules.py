"""Keys of evaluation: refused where there are no held-out rows, for they would have no effect."""

from controller.runs.config.keys import known_keys
from controller.runs.config.rule import Broken, Rule

_KEYS = ("data.val_batch_size", "trainer.val_before_train", "trainer.val_success_reward")
_SECTION = "rollout.val_kwargs."


def _heldout_key(name: str, default: object) -> Rule:
    def check(value: object, val_files: tuple[str, ...] | None, val_split: float | None) -> Broken | None:
        if val_files is not None or val_split is not None or value == default:
            return None
        return Broken(
            "there are no held-out rows, so nothing is evaluated",
            "leave it out, or give data.val_files or data.val_split",
        )

    return Rule((name, "data.val_files", "data.val_split"), check, is_idle=True)


HELDOUT_RULES: tuple[Rule, ...] = tuple(
    _heldout_key(name, key.default) for name, key in known_keys().items() if name in _KEYS or name.startswith(_SECTION)
)
