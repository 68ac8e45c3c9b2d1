"""Python's calls into the C library that keeps a machine's state; only this module touches it."""

import ctypes
import json
import os
from enum import IntFlag
from functools import cache
from pathlib import Path
from typing import Any

from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.simgpu.build import CORE, libraries
from tfgpu_magic.simgpu.spec import GpuSpec

ANY_DEVICE = -1
UNSET = -1


class Fault(IntFlag):
    """Faults of the whole machine; the numbers are those of `enum sim_flag`."""

    HIDE_MEMORY = 1
    HOST_PIDS = 2
    NO_DRIVER = 4


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(libraries() / CORE), use_errno=True)
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64
    for name, result, arguments in (
        ("create", pointer, (text, size)),
        ("add_gpu", number, (pointer, text, size, size, number, number, number, number, number, number)),
        ("open", pointer, (text,)),
        ("close", None, (pointer,)),
        ("add_row", ctypes.c_uint, (pointer, number, number, size, ctypes.c_char)),
        ("change_row", number, (pointer, ctypes.c_uint, size)),
        ("fault", number, (pointer, text, number, number, size)),
        ("sense", None, (pointer, number, number, number, number)),
        ("use", None, (pointer, number, number)),
        ("flag", None, (pointer, ctypes.c_uint, number)),
        ("driver", None, (pointer, text, number)),
        ("lose", None, (pointer, number, number)),
        ("clear_faults", None, (pointer,)),
        ("report", ctypes.c_size_t, (pointer, text, ctypes.c_size_t)),
    ):
        function = getattr(library, f"tfgpusim_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class MachineState:
    """The mapped state of one machine. Devices are numbered GPUs first, then MIG instances."""

    def __init__(self, address: int, path: Path) -> None:
        self._library = _library()
        self._mapped: int | None = address
        self._path = path

    @classmethod
    def create(cls, path: Path, gpus: list[GpuSpec], context: int) -> "MachineState":
        """Make the state file of a machine with these GPUs; `context` is in bytes."""
        address = _library().tfgpusim_create(os.fsencode(path), context)
        if not address:
            raise SimulatorError(
                f"the simulated machine could not be made at {path}: {os.strerror(ctypes.get_errno())}."
            )
        for gpu in gpus:
            _library().tfgpusim_add_gpu(
                address,
                gpu.name.encode(),
                gpu.total,
                gpu.reserved,
                gpu.multiprocessors,
                gpu.clock,
                *gpu.capability,
                gpu.mode,
                gpu.mig,
            )
        return cls(address, path)

    @classmethod
    def open(cls, path: Path) -> "MachineState":
        """Map the state file of a machine that another process made."""
        address = _library().tfgpusim_open(os.fsencode(path))
        if not address:
            reason = os.strerror(ctypes.get_errno()) if not path.exists() else "it is no machine of this version"
            raise SimulatorError(f"there is no simulated machine at {path}: {reason}.")
        return cls(address, path)

    @property
    def _address(self) -> int:
        if self._mapped is None:
            raise SimulatorError(f"the simulated machine at {self._path} is closed.")
        return self._mapped

    def close(self) -> None:
        """Unmap the state; every later call raises `SimulatorError`."""
        if self._mapped is not None:
            self._library.tfgpusim_close(self._mapped)
            self._mapped = None

    def report(self) -> dict[str, Any]:
        """Return the whole state, dead processes' rows dropped first."""
        size = 1 << 16
        while True:
            buffer = ctypes.create_string_buffer(size)
            length: int = self._library.tfgpusim_report(self._address, buffer, size)
            if length < size:
                report: dict[str, Any] = json.loads(buffer.value)
                return report
            size = 2 * length

    def add_row(self, pid: int, device: int, held: int, kind: str) -> int:
        """Add a row that stays until removed, and return its number."""
        row: int = self._library.tfgpusim_add_row(self._address, pid, device, held, kind.encode("ascii"))
        if not row:
            raise SimulatorError("the simulated machine has no room for another row.")
        return row

    def change_row(self, row: int, held: int) -> None:
        """Change what a row holds; 0 removes it."""
        self._library.tfgpusim_change_row(self._address, row, held)

    def fault(self, function: str, device: int, code: int, seconds: float) -> None:
        """Make a function return a code or hang; both 0 end that."""
        if not self._library.tfgpusim_fault(self._address, function.encode(), device, code, int(seconds * 1e9)):
            raise SimulatorError("the simulated machine has no room for another fault: clear some.")

    def set_sensors(self, device: int, utilisation: int | None, celsius: int | None, milliwatts: int | None) -> None:
        """Set what NVML tells of a device besides memory; None is what a device is made with."""
        figures = (UNSET if one is None else one for one in (utilisation, celsius, milliwatts))
        self._library.tfgpusim_sense(self._address, device, *figures)

    def use(self, pid: int, utilisation: int | None) -> None:
        """Set what NVML tells of a process's utilisation; None is what follows from the kernels that it launches."""
        self._library.tfgpusim_use(self._address, pid, UNSET if utilisation is None else utilisation)

    def flag(self, flag: Fault, on: bool) -> None:
        """Set or clear one of the flags."""
        self._library.tfgpusim_flag(self._address, int(flag), int(on))

    def driver(self, version: str, dmem: bool) -> None:
        """Set the driver's version, and whether the kernel's dmem controller keeps its limits."""
        self._library.tfgpusim_driver(self._address, version.encode(), int(dmem))

    def lose(self, device: int, lost: bool) -> None:
        """Lose a device, or restore it."""
        self._library.tfgpusim_lose(self._address, device, int(lost))

    def clear_faults(self) -> None:
        """End all faults, flags and losses."""
        self._library.tfgpusim_clear_faults(self._address)
