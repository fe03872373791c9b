"""One prefill call: what does not fit before its deadline is left to the next."""

from pathlib import Path

import pytest

from functions.prefill.prefilling import Prefilling
from functions.prefill.rounds import plan_rounds
from shared.inference.decoder import decoder_for
from shared.inference.prefix_scope import prefix_scope
from tests.unit.functions.prefill.prefill_world import RUN, model_of, prefill_world

PROMPTS = [(number, *range(10)) for number in range(3)]


@pytest.mark.parametrize(("pace_s", "next_round"), [(0.0, None), (0.5, None), (100.0, 1)])
async def test_a_round_that_would_take_longer_than_is_left_is_for_the_next_call(
    tmp_path: Path, pace_s: float, next_round: int | None
) -> None:
    async with prefill_world(tmp_path) as world:
        decoder = decoder_for(model_of())
        prefilling = Prefilling(
            run=RUN,
            scope=prefix_scope(await world.policy(), str(world.folder), decoder.layout),
            plan=plan_rounds(PROMPTS, 1),
            decoder=decoder,
            context=world.context,
            threads=1,
            # What the call's rounds so far took; a minute is left.
            computed_tokens=1000,
            compute_s=1000 * pace_s,
        )
        outputs = await prefilling.work(0)
    assert (outputs.next_round, outputs.num_prefixes) == (next_round, 3 if next_round is None else next_round)
