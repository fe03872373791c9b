from pathlib import Path

import pytest
import torch

from functions.critic.value_model import initial_value_model, new_value_model
from shared.modeling.weights import load_blob, state_dict_to_blob
from tests.unit.functions.learner.builders import tiny_model


@pytest.mark.parametrize("tied", [False, True])
def test_it_starts_at_zero_everywhere_with_the_models_own_body(tmp_path: Path, tied: bool) -> None:
    model = tiny_model(tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    critic = initial_value_model(str(tmp_path))
    token_ids = torch.tensor([[1, 2, 3]])
    assert critic(token_ids).logits.shape == (1, 3, 1)
    assert (critic(token_ids).logits == 0).all()
    hidden = critic.model(token_ids).last_hidden_state
    assert torch.allclose(hidden, model.model(token_ids).last_hidden_state)


@pytest.mark.parametrize("tied", [False, True])
def test_a_blob_gives_the_same_values_back(tmp_path: Path, tied: bool) -> None:
    tiny_model(tie_word_embeddings=tied).save_pretrained(tmp_path)
    critic = initial_value_model(str(tmp_path))
    with torch.no_grad():
        critic.get_output_embeddings().weight.normal_()
        critic.get_output_embeddings().bias.fill_(0.25)
    again = new_value_model(str(tmp_path))
    load_blob(again, state_dict_to_blob(critic))
    token_ids = torch.tensor([[4, 5, 6, 7]])
    assert torch.equal(again(token_ids).logits, critic(token_ids).logits)
    assert critic(token_ids).logits.std() > 0.1
