"""The real PyTorch on a simulated machine: its build for the CPU, with what it has not of CUDA filled in.

What PyTorch does in Python is its own: when it starts CUDA, what it calls then, how it checks arguments, and where it
finds its statistics. Below that, in C++, `Library` answers.
"""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.frameworks import torch_stand_in
from tests.simgpu.on_machine import enter
from tests.sizes import MIB
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.torch.framework import Torch
from tfgpu_magic.insight.objects.tensors import tensors
from tfgpu_magic.isolate import host_memory
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.model.report import Figure

ALLOCATED, PEAK, RESERVED = 64 * MIB, 128 * MIB, 256 * MIB
"""Bytes of the first GPU, once it is in use; of the second, twice that."""

STAND_IN = Path(__file__).parent / "stand_in" / "torch" / "cuda.py"


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


def told(steps: Sequence[str]) -> tuple[dict[str, tuple[Figure, ...]], str, str]:
    """Go through steps, each ``import``, ``use`` or words for every framework.

    Returns:
        The figures of all frameworks, the options of PyTorch's allocator, and what the last words were refused with.
    """
    refused = ""
    for step in steps:
        if step == "import":
            imported()
        elif step == "use":
            imported().cuda.init()
        else:
            try:
                tfgpu_magic.apply(step, frameworks="all")
            except tfgpu_magic.Refused as error:
                refused = str(error)
    return registry.figures(), options(imported()), refused


def given_back() -> dict[str, int]:
    """Return what PyTorch gives back of what it has reserved, by the UUID of each GPU."""
    imported().cuda.init()
    return Torch().give_back()


def measured() -> tuple[int, int, int]:
    """Import PyTorch in a block that is measured, and reset its peaks as its users do in one within it.

    Returns:
        The peaks of both, and what PyTorch itself tells afterwards.
    """
    with tfgpu_magic.measure(driver=False) as outer:
        torch = imported()
        torch.cuda.init()
        library = torch.cuda._cudart
        library.use(0, 700 * MIB)
        library.use(0, 50 * MIB)
        with tfgpu_magic.measure(driver=False) as inner:
            library.use(0, 300 * MIB)
            library.use(0, 100 * MIB)
            torch.cuda.reset_peak_memory_stats(0)
            library.use(0, 200 * MIB)
            library.use(0, 10 * MIB)
    return outer.peak, inner.peak, torch.cuda.max_memory_allocated(0)


def asked_without_a_start() -> tuple[str, list[int], bool, tuple[int, ...]]:
    """Ask PyTorch all that is asked of one that sleeps; return that, and whether it has started and its version."""
    import torch

    one = Torch()
    asked = [torch.cuda.memory_reserved(0), torch.cuda.memory_allocated(0), torch.cuda.max_memory_allocated(0)]
    return one.stage().name, asked, torch.cuda.is_initialized(), one.version()


def unlike_the_stand_ins() -> list[str]:
    """Return the names of functions that the stand-ins have and PyTorch has not, or does not take as many arguments."""
    import torch

    found = []
    for name, function in _stand_ins().items():
        try:
            inspect.signature(getattr(torch.cuda, name, None)).bind(*inspect.signature(function).parameters)  # type: ignore[arg-type]
        except TypeError:
            found.append(name)
    return found


def _stand_ins() -> dict[str, Callable[..., object]]:
    """Return every function that a stand-in has of `torch.cuda`."""
    spec = importlib.util.spec_from_file_location("stand_in", STAND_IN)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    of_machine = {name: found for name, found in vars(module).items() if inspect.isfunction(found) and name != "take"}
    return {**of_machine, **vars(torch_stand_in.torch(allocated=[], reserved=[]).cuda)}


def by_name() -> tuple[dict[str, int], int | None]:
    """Return bytes of tensors by the names that lead to them, and what is in use by PyTorch's figure.

    The tensors are in the computer's memory, and of a class that says that they are on a GPU.
    """
    torch = imported()
    torch.cuda.init()

    class OnGpu(torch.Tensor):  # type: ignore[misc, name-defined]  # mypy does not know it
        is_cuda = True

        def get_device(self) -> int:
            return 0

        @classmethod
        def __torch_function__(cls, *_: object, **__: object) -> Any:
            raise AssertionError("code of the user's was run")

    def on_gpu(size: int) -> Any:
        return torch.zeros(size // 4).as_subclass(OnGpu)

    main: Any = sys.modules["__main__"]
    with torch._C.DisableTorchFunctionSubclass():
        main.w = on_gpu(4 * MIB).requires_grad_()
        main.w.grad = on_gpu(4 * MIB)
        main.batch = [on_gpu(2 * MIB)]
        main.row = main.batch[0][16:32]
    taken = tensors()
    return {one.name.expression: one.size for one in taken.holdings}, taken.accounts[0].in_use


def copied() -> int:
    """Pickle a tensor for which there is no room; return how often PyTorch has copied it before that was refused."""
    import torch

    tensor = torch.zeros(130 * MIB, dtype=torch.uint8)
    with (
        mock.patch.object(host_memory, "left", return_value=100 * MIB),
        mock.patch.object(torch, "save") as save,
        pytest.raises(OSError, match="no room for 130 MiB"),
    ):
        pickling.dump((tensor[::2],))
    count: int = save.call_count
    return count


def within(cgroup: Path, steps: Sequence[str]) -> tuple[dict[str, tuple[Figure, ...]], str, str]:
    """Go through steps in a cgroup, as `told` does."""
    enter(cgroup)
    return told(steps)
