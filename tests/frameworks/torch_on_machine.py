"""The real PyTorch on a simulated machine: its build for the CPU, with what it has not of CUDA filled in.

What PyTorch does in Python is its own: when it starts CUDA, what it calls then, how it checks arguments, and where it
finds its statistics. Below that, in C++, `Library` answers.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tfgpu_magic
from tests.simgpu.on_machine import enter
from tests.sizes import MIB
from tfgpu_magic.frameworks import registry

ALLOCATED, PEAK, RESERVED = 64 * MIB, 128 * MIB, 256 * MIB
"""Bytes of the first GPU, once it is in use; of the second, twice that."""


class Library:
    """What PyTorch's C++ answers in a build for CUDA; it starts the driver, counts memory, and takes none."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._fractions: dict[int, float] = {}
        self._reserved = RESERVED
        self._allocated: dict[int, tuple[int, int]] = {}  # now, and at most, where it was told

    def fill_in(self) -> None:
        """Give `torch._C` what it lacks, by the names and types of `torch/_C/__init__.pyi`."""
        functions = {
            "emptyCache": self._empty,
            "init": self._init,
            "getDeviceCount": self._count,
            "getMemoryFraction": lambda device: self._fractions[device],
            "memoryStats": self._stats,
            "resetPeakMemoryStats": self._reset,
            "setMemoryFraction": self._set,
        }
        for name, function in functions.items():
            setattr(self._torch._C, f"_cuda_{name}", function)
        self._torch.cuda._cudart = self

    def _init(self) -> None:
        assert self._driver.cuInit(0) == 0
        self._torch.cuda._get_device_properties = self._properties  # as the one in C++ does
        found = re.search(r"per_process_memory_fraction:([0-9.]+)", options(self._torch))
        self._fractions = dict.fromkeys(range(self._count()), float(found[1]) if found else 1.0)

    def _count(self) -> int:
        count = ctypes.c_int()
        self._driver.cuDeviceGetCount(ctypes.byref(count))
        return count.value

    def use(self, device: int, size: int) -> None:
        """Have so many bytes allocated of a GPU from now on."""
        self._allocated[device] = size, max(size, self._counted(device)[1])

    def _stats(self, device: int) -> dict[str, Any]:
        (allocated, peak), reserved = self._counted(device), (device + 1) * self._reserved
        return {
            "allocated_bytes": {"all": {"current": allocated, "peak": peak}},
            "reserved_bytes": {"all": {"current": reserved, "peak": reserved}},
        }

    def _reset(self, device: int) -> None:
        allocated, _ = self._counted(device)
        self._allocated[device] = allocated, allocated

    def _counted(self, device: int) -> tuple[int, int]:
        return self._allocated.get(device, ((device + 1) * ALLOCATED, (device + 1) * PEAK))

    def _empty(self) -> None:
        self._reserved = ALLOCATED

    def _set(self, fraction: float, device: int) -> None:
        assert device in self._fractions
        self._fractions[device] = fraction

    def _properties(self, device: int) -> SimpleNamespace:
        total = ctypes.c_size_t()
        self._driver.cuDeviceTotalMem_v2(ctypes.byref(total), device)
        return SimpleNamespace(total_memory=total.value)


def imported() -> Any:
    """Import PyTorch, and fill in what it lacks."""
    import torch

    if not torch.cuda._is_compiled():
        Library(torch).fill_in()
    return torch


def options(torch: Any) -> str:
    """Return the options of PyTorch's allocator, as PyTorch has read them."""
    return str(torch._C._accelerator_getAllocatorSettings())


def go(*steps: str) -> None:
    """Go through steps, each ``import``, ``use`` or words for every framework."""
    for step in steps:
        if step == "import":
            imported()
        elif step == "use":
            imported().cuda.init()
        else:
            tfgpu_magic.apply(step, frameworks="all")


def limits() -> list[int]:
    """Return PyTorch's limits in MiB, rounded up: a fraction has six places."""
    figures = [figure for those in registry.figures().values() for figure in those]
    return [-(figure.size // -MIB) for figure in figures if figure.what == "limit"]


def within(cgroup: Path, steps: Iterable[str]) -> list[int]:
    """Return PyTorch's limits after steps in a cgroup."""
    enter(cgroup)
    go(*steps)
    return limits()
