"""What fits on the machine."""

from controller.platforms.local.capacity import Machine
from controller.platforms.local.manifest import Resources
from shared.contracts.ids import InstanceId

A, B = InstanceId("a"), InstanceId("b")


def test_what_fits_is_reserved_until_it_is_freed() -> None:
    machine = Machine(num_cpus=1, memory_bytes=2**30)
    half = Resources(num_cpus=0.5, memory_bytes=2**29)
    assert machine.reserve(A, half) is None
    assert machine.reserve(B, half) is None
    assert machine.reserve(InstanceId("c"), half) is not None
    machine.free(A)
    assert machine.reserve(InstanceId("c"), half) is None


def test_what_does_not_fit_reserves_nothing_and_says_what_is_lacking() -> None:
    machine = Machine(num_cpus=2, memory_bytes=4 * 2**30)
    assert machine.reserve(A, Resources(num_cpus=1.5)) is None
    reason = machine.reserve(B, Resources(num_cpus=1, memory_bytes=8 * 2**30, num_gpus=1))
    assert reason == (
        "unschedulable: 1 cpus wanted, 0.5 of 2 free; 8 GiB of memory wanted, 4 of 4 free; 1 gpus wanted, 0 of 0 free"
    )
    assert machine.reserve(B, Resources(num_cpus=0.5)) is None


def test_what_asks_for_nothing_always_fits() -> None:
    assert Machine(num_cpus=0, memory_bytes=0).reserve(A, Resources()) is None


def test_tenths_of_a_cpu_add_up() -> None:
    machine = Machine(num_cpus=1, memory_bytes=0)
    fits = [machine.reserve(InstanceId(str(n)), Resources(num_cpus=0.1)) for n in range(11)]
    assert fits[:10] == [None] * 10
    assert fits[10] is not None


def test_pretended_gpus_are_counted_and_seen_by_nobody() -> None:
    machine = Machine(num_cpus=1, memory_bytes=1, num_gpus=2)
    assert machine.reserve(A, Resources(num_gpus=2)) is None
    assert machine.reserve(B, Resources(num_gpus=1)) == "unschedulable: 1 gpus wanted, 0 of 2 free"
    assert machine.environment(A) == {}


def test_real_gpus_are_given_out_one_by_one() -> None:
    c = InstanceId("c")
    machine = Machine(num_cpus=1, memory_bytes=1, gpu_devices=("0", "1", "2"))
    assert machine.reserve(A, Resources(num_gpus=1)) is None
    assert machine.reserve(B, Resources(num_gpus=2)) is None
    assert machine.reserve(c, Resources()) is None
    assert [machine.environment(each)["CUDA_VISIBLE_DEVICES"] for each in (A, B, c)] == ["0", "1,2", ""]
    machine.free(A)
    assert machine.reserve(c, Resources(num_gpus=1)) is None
    assert machine.environment(c) == {"CUDA_VISIBLE_DEVICES": "0"}
