from collections.abc import Sequence

import pytest
from torch import Tensor

from shared.codec.token_values import TokenValues
from shared.contracts.completion import SampleId
from shared.training.rows import SequenceRow
from shared.training.scoring import score_trained_tokens
from shared.training.time_budget import UNLIMITED, Budget
from tests.unit.functions.learner.builders import ragged_rows, tiny_model
from tests.unit.functions.learner.learner import Passes

NUM_PASSES = 3
MAX_TOKEN_LEN = 20


def first_output(outputs: Tensor, rows: Sequence[SequenceRow]) -> Tensor:
    return outputs[:, 0]


def scores(budget: Budget = UNLIMITED, finished: TokenValues | None = None, model_type: str = "llama") -> TokenValues:
    return score_trained_tokens(
        tiny_model(model_type),
        ragged_rows(),
        first_output,
        max_token_len=MAX_TOKEN_LEN,
        budget=budget,
        finished=finished or {},
    )


def bits(values: TokenValues) -> dict[SampleId, bytes]:
    return {id: numbers.tobytes() for id, numbers in values.items()}


def test_a_pass_is_a_known_number_of_micro_batches_and_nobody_is_asked_after_the_last() -> None:
    exact, one_less = Passes(NUM_PASSES), Passes(NUM_PASSES - 1)

    assert len(scores(exact)) == len(ragged_rows()) > len(scores(one_less))
    assert exact.left == 0


@pytest.mark.parametrize("model_type", ["llama", "gpt_neox"])
@pytest.mark.parametrize("first_passes", range(NUM_PASSES))
def test_a_pass_cut_anywhere_is_bit_equal_to_one_in_a_piece(first_passes: int, model_type: str) -> None:
    whole = scores(model_type=model_type)
    first = scores(Passes(first_passes), model_type=model_type)
    rest = Passes(100)

    both = scores(rest, first, model_type=model_type)

    assert bool(first) == (first_passes > 0)
    assert {id: whole[id].tobytes() for id in first} == bits(first)
    assert bits(both) == bits(whole)


def test_what_is_finished_is_not_computed_again() -> None:
    first = scores(Passes(1))
    rest = Passes(100)
    scores(rest, first)

    assert 100 - rest.left == NUM_PASSES - 1
