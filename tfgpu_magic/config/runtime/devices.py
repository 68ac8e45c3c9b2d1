"""TensorFlow's own settings of its devices: read whole, written whole, and its memory figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tfgpu_magic.config import cuda
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.runtime import stage
from tfgpu_magic.errors import Refused
from tfgpu_magic.monitor.report import LogicalGpu
from tfgpu_magic.units import MIB

CPU = "CPU"
"""Stands for the CPU where GPUs stand by their UUIDs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `tf.config` is set to, by the UUIDs of GPUs.

    Attributes:
        parts: MiB of each logical device that a GPU or the CPU is divided into, None without a limit; empty if it is
            not divided.
        growth: whether memory growth is on; None where nobody has said.
        visible: the GPUs that TensorFlow is to see, in CUDA's order.
    """

    parts: Mapping[str, tuple[int | None, ...]]
    growth: Mapping[str, bool | None]
    visible: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What TensorFlow's allocator says of one logical GPU, in bytes. The CUDA context is not in them.

    Attributes:
        in_use: what it has handed out now.
        peak: the most that it has handed out at once since the last reset.
        limit: what it may take.
    """

    in_use: int
    peak: int
    limit: int


def read() -> Settings:
    """The settings now. TensorFlow makes its list of devices for it, if it has none: ask only where that may be."""
    config, devices = _config(), _physical()
    cpus = dict(zip([CPU], config.list_physical_devices("CPU"), strict=False))
    return Settings(
        parts={
            uuid: tuple(part.memory_limit for part in config.get_logical_device_configuration(device) or ())
            for uuid, device in {**cpus, **devices}.items()
        },
        growth={uuid: config.experimental.get_memory_growth(device) for uuid, device in devices.items()},
        visible=tuple(uuid for uuid, device in devices.items() if device in config.get_visible_devices("GPU")),
    )


def write(settings: Settings) -> None:
    """Make the settings so; what is so already is left alone.

    Raises:
        Refused: TensorFlow leaves out a GPU that CUDA shows, and then mistakes the numbers of the others.
        RuntimeError, ValueError: TensorFlow does not take one of them; those before it are set.
    """
    config, devices, now = _config(), _physical(), read()
    if tuple(devices) != cuda.shown():
        raise Refused(
            "Not applied. TensorFlow does not use every GPU that CUDA shows it, and mistakes the numbers of others. "
            "Restart, and hide that GPU with `%tf_gpu visible` before TensorFlow is imported."
        )
    cpus = config.list_physical_devices("CPU")[:1]
    for uuid, parts in settings.parts.items():
        if parts != now.parts.get(uuid):
            for device in cpus if uuid == CPU else [devices[uuid]]:
                _divide(device, parts)
    # A divided device takes no growth setting; the variable gives growth there, and TensorFlow compares nothing.
    if not any(settings.parts.values()):
        for uuid, growth in settings.growth.items():
            if growth != now.growth.get(uuid):
                config.experimental.set_memory_growth(devices[uuid], growth)
    if settings.visible != now.visible:
        config.set_visible_devices([devices[uuid] for uuid in settings.visible], "GPU")


def _physical() -> dict[str, Any]:
    """TensorFlow's physical GPUs by their UUIDs: the number in ``/physical_device:GPU:0`` is CUDA's."""
    gpus = _config().list_physical_devices("GPU")
    shown = cuda.shown()  # after the list, which starts CUDA where nobody has
    return {shown[_number(gpu)]: gpu for gpu in gpus if _number(gpu) < len(shown)}


def logical() -> dict[str, tuple[LogicalGpu, ...]]:
    """TensorFlow's logical GPUs, by the UUID of the GPU that each is on; 0.7 ms, once.

    None before it is ready, nor in a process that was forked since.
    """
    tf = stage.tensorflow()
    if tf is None or stage.current_stage() is not Stage.READY or stage.forked():
        return {}
    found: dict[str, tuple[LogicalGpu, ...]] = {}
    for name, uuid, limit in _logical(tf, id(stage.eager_context())):
        found[uuid] = (*found.get(uuid, ()), LogicalGpu(name=name, limit=limit))
    return found


def pools() -> dict[str, tuple[Pool, ...]]:
    """What the allocator of each of them says, by GPU in the same way; some 10 µs a logical GPU."""
    return {uuid: tuple(map(_pool, on_it)) for uuid, on_it in logical().items()}


def _pool(one: LogicalGpu) -> Pool:
    figures = _config().experimental.get_memory_info(one.name)
    return Pool(in_use=figures["current"], peak=figures["peak"], limit=one.limit or 0)


@lru_cache(maxsize=1)
def _logical(tf: Any, context: int) -> tuple[tuple[str, str, int], ...]:  # noqa: ARG001
    """List TensorFlow's logical GPUs: name, UUID and limit in bytes. A context never changes them."""
    from tensorflow.python.client import device_lib

    # Never without session_config: TensorFlow would make allocators of its own, and not count them.
    devices = device_lib.list_local_devices(session_config=tf.__internal__.eager_context.get_config())
    uuids = cuda.by_pci()
    found: list[tuple[str, str, int]] = []
    for device in devices:
        pci = re.search(r"pci bus id: ([0-9a-f:.]+)", device.physical_device_desc)
        if device.device_type == "GPU" and pci is not None and pci[1] in uuids:
            found.append((device.name.removeprefix("/device:"), uuids[pci[1]], device.memory_limit))
    return tuple(found)


def _config() -> Any:
    tf = stage.tensorflow()
    assert tf is not None  # noqa: S101  # nobody asks before it is imported
    return tf.config


def _divide(device: Any, parts: tuple[int | None, ...]) -> None:
    """Divide a physical device into logical ones, or take its division back."""
    config = _config()
    if parts:
        logical = [config.LogicalDeviceConfiguration(memory_limit=size) for size in parts]
        config.set_logical_device_configuration(device, logical)
        return
    # An empty list is accepted and makes the first op fail, and there is no public way to take a division back.
    context = stage.eager_context()
    if context is not None:
        context._virtual_device_map.pop(device, None)


def _number(gpu: Any) -> int:
    return int(gpu.name.rpartition(":")[2])


def mebibytes(sizes: Iterable[int]) -> tuple[int | None, ...]:
    """Sizes in bytes as TensorFlow takes them."""
    return tuple(size // MIB for size in sizes)
