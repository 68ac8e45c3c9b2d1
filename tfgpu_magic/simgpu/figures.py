"""The figures of a simulated machine's driver, as plain data, made from the C library's report."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SimGpu:
    """A simulated GPU or MIG instance by its driver's account. Sizes are bytes.

    Attributes:
        index: NVML's number of the GPU; a MIG instance has its GPU's.
        instance: the number of the MIG instance on its GPU, counted from 1 as `gpuInstanceId`; None for a whole GPU.
        name: begins with ``Simulated``.
        uuid: ``GPU-...`` or ``MIG-...``.
        pci: ``0000:01:00.0``.
        total: all memory; it is `reserved`, `used` and `free` together.
        reserved: memory that driver and firmware keep.
        used: memory that processes hold.
        free: memory that they can still get.
        capability: CUDA compute capability.
        multiprocessors: streaming multiprocessors.
        mig: how many MIG instances it is cut into; 0 when MIG is off.
        lost: whether it is lost.
    """

    index: int
    instance: int | None
    name: str
    uuid: str
    pci: str
    total: int
    reserved: int
    used: int
    free: int
    capability: tuple[int, int]
    multiprocessors: int
    mig: int
    lost: bool

    @property
    def label(self) -> str:
        """Its name for people: ``0``, or ``0.1`` for the MIG instance 1 of GPU 0."""
        return str(self.index) if self.instance is None else f"{self.index}.{self.instance}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimProcess:
    """What one process holds on one GPU.

    Attributes:
        pid: the true process id, also while NVML shows those of another namespace.
        gpu: NVML's index of the GPU.
        instance: the MIG instance on it, or None.
        held: bytes, the context included.
        kind: ``C``, ``G`` or ``M``: compute, graphics, MPS.
    """

    pid: int
    gpu: int
    instance: int | None
    held: int
    kind: str


def place(number: int, device: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return the GPU's index and the MIG instance of a device."""
    return (number, None) if device["parent"] < 0 else (device["parent"], device["instance"])


def gpu(number: int, device: Mapping[str, Any]) -> SimGpu:
    """Return a device of a report as a `SimGpu`."""
    index, instance = place(number, device)
    return SimGpu(
        index=index,
        instance=instance,
        name=device["name"],
        uuid=device["uuid"],
        pci=device["pci"],
        total=device["total"],
        reserved=device["reserved"],
        used=device["used"],
        free=device["total"] - device["reserved"] - device["used"],
        capability=(device["major"], device["minor"]),
        multiprocessors=device["multiprocessors"],
        mig=device["instances"],
        lost=device["lost"],
    )
