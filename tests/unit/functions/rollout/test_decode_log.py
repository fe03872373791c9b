"""Stretches of decoding: few of them, and nothing is lost by that."""

import pytest

from functions.rollout.decode_log import DecodeLog
from shared.contracts.rollout import MAX_DECODE_STRETCHES, DecodeStretch


def burst(index: int) -> DecodeStretch:
    return DecodeStretch(
        num_steps=1 + index % 3, num_sequences=index % 7, context_tokens=100.0 + index, seconds=0.5 + index / 8
    )


def total(stretches: list[DecodeStretch], name: str) -> float:
    return sum(stretch.num_steps * getattr(stretch, name) for stretch in stretches)


@pytest.mark.parametrize("num_bursts", [0, 1, 2, 63, 64, 65, 127, 128, 129, 200, 1000, 5000])
def test_there_are_few_and_their_sums_are_those_of_the_bursts(num_bursts: int) -> None:
    log, bursts = DecodeLog(), [burst(index) for index in range(num_bursts)]
    for each in bursts:
        log.add(each)
    stretches = list(log.stretches())
    assert len(stretches) <= MAX_DECODE_STRETCHES
    assert len(stretches) >= min(num_bursts, MAX_DECODE_STRETCHES // 2)
    assert sum(stretch.num_steps for stretch in stretches) == sum(each.num_steps for each in bursts)
    assert sum(stretch.seconds for stretch in stretches) == pytest.approx(sum(each.seconds for each in bursts))
    for name in ("num_sequences", "context_tokens"):
        assert total(stretches, name) == pytest.approx(total(bursts, name))


def test_they_are_in_order_and_nearly_equally_long() -> None:
    log = DecodeLog()
    for index in range(1000):
        log.add(DecodeStretch(num_steps=1, num_sequences=1, context_tokens=index, seconds=0.1))
    contexts = [stretch.context_tokens for stretch in log.stretches()]
    assert contexts == sorted(contexts)
    assert {stretch.num_steps for stretch in log.stretches()[:-1]} == {16}
