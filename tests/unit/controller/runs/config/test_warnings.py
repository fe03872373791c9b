"""What a config is warned of."""

import pytest

from controller.runs.config.load import load_config
from controller.runs.config.warnings import warnings_of

MINIMAL = {
    "model.path": "m",
    "data.train_files": "t.jsonl",
    "reward.rule": "exact_match",
    "trainer.total_training_steps": 10,
}


EVALUATION = {"data.val_files": "v.jsonl", "rollout.val_kwargs.top_p": 0.5, "rollout.val_kwargs.top_k": 3}


@pytest.mark.parametrize("given", [{}, {"top_k": 0}, EVALUATION])
def test_most_configs_get_no_warning(given: dict[str, object]) -> None:
    assert warnings_of(load_config(MINIMAL | given)) == ()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"top_p": 0.9}, "rollout.top_p 0.9,"),
        ({"top_k": 20}, "rollout.top_k 20,"),
        ({"top_p": 0.9, "top_k": 20}, "rollout.top_p 0.9 and rollout.top_k 20,"),
    ],
)
def test_training_on_truncated_samples_is_warned_of(given: dict[str, object], named: str) -> None:
    (warning,) = warnings_of(load_config(MINIMAL | given))
    assert warning.startswith(f"warning: with {named}")
    assert "top_p 1 and top_k -1" in warning


def test_a_kl_term_without_a_gradient_is_warned_of() -> None:
    (warning,) = warnings_of(load_config(MINIMAL | {"actor.use_kl_loss": True, "actor.kl_loss_type": "k1"}))
    assert "low_var_kl" in warning
    assert warnings_of(load_config(MINIMAL | {"actor.use_kl_loss": True})) == ()
