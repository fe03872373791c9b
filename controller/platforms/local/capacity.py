"""What fits on this machine: replicas whose requests do not fit stay pending with the reason.

GPUs may be pretended, to try out a schedule: they are counted, and replicas see none. Where the machine really has
them, each replica gets devices of its own.
"""

from dataclasses import dataclass, field

from controller.platforms.local.manifest import Resources
from shared.contracts.ids import InstanceId


@dataclass(slots=True, kw_only=True)
class Machine:
    """The machine's capacity and what replicas have reserved of it."""

    num_cpus: float
    memory_bytes: int
    num_gpus: int = 0
    gpu_devices: tuple[str, ...] = ()
    """Real GPUs, as CUDA names them. Empty: ``num_gpus`` are pretended."""
    _reserved: dict[InstanceId, Resources] = field(default_factory=dict)
    _devices: dict[InstanceId, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gpu_devices:
            self.num_gpus = len(self.gpu_devices)

    def reserve(self, instance: InstanceId, wanted: Resources) -> str | None:
        """Reserve for a replica. None, or the reason why it does not fit; then nothing is reserved."""
        lacking = [
            f"{asked:g} {unit} wanted, {max(0.0, total - used):g} of {total:g} free"
            for unit, asked, used, total in self._balance(wanted)
            if asked > 0 and used + asked > total + 1e-9
        ]
        if lacking:
            return f"unschedulable: {'; '.join(lacking)}"
        self._reserved[instance] = wanted
        taken = {device for devices in self._devices.values() for device in devices}
        free = [device for device in self.gpu_devices if device not in taken]
        self._devices[instance] = tuple(free[: wanted.num_gpus])
        return None

    def environment(self, instance: InstanceId) -> dict[str, str]:
        """Variables that show a replica its GPUs, and none but its own. Nothing where there are no real ones."""
        if not self.gpu_devices:
            return {}
        return {"CUDA_VISIBLE_DEVICES": ",".join(self._devices.get(instance, ()))}

    def free(self, instance: InstanceId) -> None:
        """Give back what the replica had reserved, if anything."""
        self._reserved.pop(instance, None)
        self._devices.pop(instance, None)

    def _balance(self, wanted: Resources) -> tuple[tuple[str, float, float, float], ...]:
        """Per resource: unit, asked, used, total."""
        taken = self._reserved.values()
        gib = 2.0**30
        return (
            ("cpus", wanted.num_cpus, sum(r.num_cpus for r in taken), self.num_cpus),
            (
                "GiB of memory",
                wanted.memory_bytes / gib,
                sum(r.memory_bytes for r in taken) / gib,
                self.memory_bytes / gib,
            ),
            ("gpus", wanted.num_gpus, sum(r.num_gpus for r in taken), self.num_gpus),
        )
