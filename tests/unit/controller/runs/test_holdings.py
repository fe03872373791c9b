"""Replicas with their state and cost: what is held, and what a window of it comes to."""

import pytest

from controller.platforms.base import ReplicaLife
from controller.runs.holdings import Holding, ReplicaState, holdings
from controller.runs.ledger import Price
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage

PRICE = Price(cpu_hour_usd=36.0, gpu_hour_usd=3600.0)
"""A cent for a CPU-second, a dollar for a GPU-second."""


def life(name: str, *, num_gpus: int = 0, function: str = "rollout", reason: str = "", **times: float) -> ReplicaLife:
    return ReplicaLife(
        instance=InstanceId(name),
        function=function,
        stages=(Stage.ROLLOUT,),
        revision=f"{function}-00001",
        num_cpus=2.0,
        num_gpus=num_gpus,
        reason=reason,
        **{"scheduled_at": 100.0, **times},
    )


def held(*lives: ReplicaLife) -> dict[str, Holding]:
    return {holding.life.instance: holding for holding in holdings(lives, since=110.0, now=160.0, price=PRICE).replicas}


def test_the_state_is_the_phase_that_was_reached_last() -> None:
    replicas = held(
        life("a", reason="unschedulable: 3 of 2 cpus"),
        life("b", started_at=101.0),
        life("c", started_at=101.0, ready_at=102.0),
        life("d", started_at=101.0, ready_at=102.0, draining_at=103.0),
        life("e", started_at=101.0, ready_at=102.0, draining_at=103.0, ended_at=104.0),
        life("f", started_at=101.0, draining_at=103.0),
        life("g"),
    )
    states = [replicas[name].state for name in "abcdefg"]
    assert states == ["pending", "starting", "ready", "draining", "ended", "draining", "starting"]
    assert all(isinstance(state, ReplicaState) for state in states)


def test_a_replica_costs_from_its_place_on_and_within_the_window() -> None:
    replicas = held(
        life("pending"),
        life("before", started_at=100.0, ready_at=101.0, ended_at=109.0),
        life("across", started_at=100.0, ready_at=101.0),
        life("within", started_at=120.0, ended_at=125.0, num_gpus=1),
    )
    assert {name: holding.held_s for name, holding in replicas.items()} == {
        "pending": 0.0,
        "before": 0.0,
        "across": 50.0,
        "within": 5.0,
    }
    assert replicas["pending"].usd == 0.0
    assert replicas["across"].usd == pytest.approx(50 * 2 * 0.01)
    assert replicas["within"].usd == pytest.approx(5 * (2 * 0.01 + 1.0))


def test_a_function_costs_what_its_replicas_do_ended_ones_too() -> None:
    found = holdings(
        [
            life("a", started_at=110.0),
            life("b", started_at=110.0, ended_at=120.0),
            life("c", function="learner", started_at=150.0),
            life("d", function="reward"),
        ],
        since=110.0,
        now=160.0,
        price=PRICE,
    )
    assert {name: cost.cpu_seconds for name, cost in found.costs.items()} == {"rollout": 120.0, "learner": 20.0}
    assert found.costs["rollout"].num_replicas == 2
    by_replica = sum(holding.usd for holding in found.replicas)
    assert sum(cost.usd for cost in found.costs.values()) == pytest.approx(by_replica)
