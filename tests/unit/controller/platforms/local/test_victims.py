"""Which replicas a scale-down takes."""

from dataclasses import replace

from controller.platforms.local.victims import FINISHED_COST, Candidate, choose_victims
from shared.contracts.ids import InstanceId

OLD = Candidate(instance=InstanceId("old"), placed=True, ready=True, deletion_cost=0, ready_at=10.0, scheduled_at=5.0)
NEW = replace(OLD, instance=InstanceId("new"), ready_at=20.0, scheduled_at=15.0)
FINISHED = replace(OLD, instance=InstanceId("finished"), deletion_cost=FINISHED_COST, ready_at=1.0)
STARTING = replace(OLD, instance=InstanceId("starting"), ready=False, ready_at=0.0)
PENDING = replace(STARTING, instance=InstanceId("pending"), placed=False)
ALL = [OLD, STARTING, FINISHED, PENDING, NEW]


def test_the_order_in_which_they_go() -> None:
    assert choose_victims(ALL, 5) == ["pending", "starting", "finished", "new", "old"]
    assert choose_victims(ALL, 2) == ["pending", "starting"]
    assert choose_victims(ALL, 0) == choose_victims(ALL, -3) == []


def test_of_equals_the_one_that_was_scheduled_later() -> None:
    twins = [replace(OLD, instance=InstanceId(name)) for name in "abc"]
    assert choose_victims(twins, 2) == ["c", "b"]


def test_a_high_cost_stays_longest_but_not_for_one_that_is_not_ready() -> None:
    dear = replace(NEW, instance=InstanceId("dear"), deletion_cost=5)
    assert choose_victims([dear, OLD], 1) == ["old"]
    assert choose_victims([replace(dear, ready=False), OLD], 1) == ["dear"]
