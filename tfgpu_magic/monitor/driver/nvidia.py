"""NVIDIA's driver as a source: its names and its files. `nvml` reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.monitor.driver.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.monitor.driver.source import SourceReader


def _open(folders: Iterable[str]) -> SourceReader:
    from tfgpu_magic.monitor.driver import nvml  # late: only what may hang opens the driver

    return nvml.NvmlReader(folders)


SOURCE = Source(
    name="NVML",
    maker="NVIDIA",
    open=_open,
    check="nvidia-smi",
    # On servers and desktops, on Jetson, on WSL.
    files=("/dev/nvidia", "/dev/nvhost", "/dev/nvmap", "/dev/nvgpu", "/dev/dxg"),
    devices=("nvidia[0-9]*", "nvidiactl", "dxg", "nvidia-caps/*"),
    vendor="0x10de",  # pci_ids.h
)
