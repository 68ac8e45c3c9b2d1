"""Parses what users write about a simulated machine into plain data: GPUs, neighbours, faults."""

import re
from dataclasses import dataclass
from typing import Any

from tfgpu_magic.errors import PolicyError, SimulatorError
from tfgpu_magic.ground.units import BINARY, MIB, exact, parse_bytes

MOST_GPUS = 64
MOST_INSTANCES = 7
MODES = {"prohibited": 2, "exclusive": 3}
"""The compute modes but the default: no process may have a context on the GPU, or only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU to be simulated.

    Attributes:
        total: bytes of memory.
        reserved: bytes that driver and firmware keep; processes share the rest.
        multiprocessors: how many it has; TensorFlow skips a GPU with fewer than 8.
        capability: compute capability as (major, minor).
        clock: in kHz; with the multiprocessors it decides which GPU CUDA takes for the fastest.
        mode: its compute mode, by NVML's number: 0 is the default, and a key of `MODES` any other.
        mig: how many MIG instances it is cut into; 0 when MIG is off.
    """

    total: int
    reserved: int
    multiprocessors: int = 32
    capability: tuple[int, int] = (8, 0)
    clock: int = 1_410_000
    mode: int = 0
    mig: int = 0

    @property
    def name(self) -> str:
        """The product's name, which shows that the GPU is not real."""
        return f"Simulated GPU {exact(self.total)}"


def parse_gpus(text: str) -> list[GpuSpec]:
    """Parse GPUs as ``[COUNTx]SIZE[:OPTION=VALUE...]``, with commas between.

    ======================  ===================================================================
    ``8GiB``                one GPU of 8 GiB
    ``4x16GiB,2x80GiB``     four of 16 GiB, and after them two of 80 GiB
    ``8GiB:sm=4``           with 4 multiprocessors: TensorFlow skips it
    ``8GiB:cc=7.5``         of compute capability 7.5
    ``8GiB:mhz=900``        slower, so that it comes later in CUDA's default order
    ``8GiB:reserved=0MiB``  driver and firmware keep nothing (default: 1/64 of it, 512 MiB at most)
    ``8GiB:mode=exclusive``  only one process may use it (or none: ``prohibited``)
    ``40GiB:mig=2``         cut into 2 MIG instances of 20 GiB
    ======================  ===================================================================

    Raises:
        SimulatorError: the text is no such list, or asks for more than 64 GPUs.
    """
    gpus = [gpu for part in text.split(",") for gpu in _parse_group(part.strip())]
    if not 1 <= len(gpus) <= MOST_GPUS:
        raise SimulatorError(f"{text!r} is {len(gpus)} GPUs. A simulated machine has 1 to {MOST_GPUS}.")
    return gpus


def _parse_group(text: str) -> list[GpuSpec]:
    size, *options = text.split(":")
    match = re.fullmatch(r"(?:(\d{1,3})\s*[x*]\s*)?(.+)", size.strip())
    if not match:
        raise SimulatorError(f"{text!r} is no GPU. Write one as 16GiB, several alike as 4x16GiB.")
    total = size_of(match[2])
    if not 64 * MIB <= total <= 16 * BINARY["TiB"]:
        raise SimulatorError(f"a GPU of {match[2]} cannot be simulated: it can have 64MiB to 16TiB.")
    fields: dict[str, Any] = dict(_option(option, total) for option in options)
    spec = GpuSpec(**({"total": total, "reserved": min(total // 64, 512 * MIB)} | fields))
    return [spec] * int(match[1] or 1)


def _option(text: str, total: int) -> tuple[str, int | tuple[int, int]]:
    name, _, value = text.partition("=")
    match name.strip():
        case "sm" if value.isdecimal() and 1 <= int(value) <= 1024:
            return "multiprocessors", int(value)
        case "cc" if re.fullmatch(r"\d{1,2}\.\d", value):
            return "capability", (int(value[:-2]), int(value[-1]))
        case "mhz" if value.isdecimal() and 1 <= int(value) <= 100_000:
            return "clock", int(value) * 1000
        case "mode" if value in MODES:
            return "mode", MODES[value]
        case "mig" if value.isdecimal() and int(value) <= MOST_INSTANCES:
            return "mig", int(value)
        case "reserved" if size_of(value) < total:
            return "reserved", size_of(value)
    raise SimulatorError(
        f"{text!r} is no option of a GPU. There are sm=32 (multiprocessors), cc=8.0 (compute capability), mhz=1410, "
        f"reserved=128MiB (less than it has), mode=exclusive and mig=2 (at most {MOST_INSTANCES})."
    )


def size_of(value: int | str) -> int:
    """Return the bytes of a size such as ``2GiB``; an int is bytes already.

    Raises:
        SimulatorError: the text is no size.
    """
    try:
        return value if isinstance(value, int) else parse_bytes(value)
    except PolicyError as error:
        raise SimulatorError(str(error)) from None


def parse_share(text: str) -> tuple[int, str]:
    """Parse what a neighbour holds, such as ``9GiB@0``: bytes in all, and the label of a GPU (``0``, MIG ``0.1``).

    Raises:
        SimulatorError: the text is no such share.
    """
    size, at, gpu = text.partition("@")
    if not at or not re.fullmatch(r"\d+(\.\d+)?", gpu.strip()):
        raise SimulatorError(f"{text!r} does not say who holds what where. Write 9GiB@0: 9 GiB on GPU 0.")
    return size_of(size), gpu.strip()


def parse_driver(text: str) -> str:
    """Return the version of a driver, such as ``595.71.05``.

    Raises:
        SimulatorError: the text is none.
    """
    if not re.fullmatch(r"\d{3}(\.\d{1,3}){1,2}", text):
        raise SimulatorError(f"{text!r} is no version of a driver. Write 580.00.00.")
    return text


def parse_fault(text: str) -> tuple[str, str, int | None]:
    """Parse ``FUNCTION=VALUE[@GPU]`` into the function, the value and the GPU's index (None: all GPUs).

    Raises:
        SimulatorError: the text is not of that form.
    """
    match = re.fullmatch(r"([A-Za-z]\w{0,80})=(\d+(?:\.\d+)?)(?:@(\d+))?", text.strip())
    if not match:
        raise SimulatorError(f"{text!r} is no fault. Write nvmlDeviceGetMemoryInfo=15, on GPU 1 only with @1 after it.")
    return match[1], match[2], None if match[3] is None else int(match[3])
