"""How an engine is told to draw tokens."""

from functions.rollout.sampling import sampling_params
from shared.contracts.rollout import Sampling


def test_the_engine_is_told_everything_it_draws_by() -> None:
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=5, min_tokens=2, max_tokens=9, eos_token_ids=(1, 2))
    params = sampling_params(sampling)
    for field in ("temperature", "top_p", "top_k", "min_tokens", "max_tokens", "eos_token_ids"):
        assert getattr(params, field) == getattr(sampling, field)
    assert sampling_params(sampling.model_copy(update={"ignore_eos": True})).eos_token_ids == ()


def test_turns_end_at_the_calls_stop_strings_and_at_their_own_each_once() -> None:
    sampling = Sampling(temperature=1.0, max_tokens=9, eos_token_ids=(1,), stop=("a", "b"))
    assert sampling_params(sampling, ("b", "c")).stop == ("a", "b", "c")
