"""The table of all sources of figures: their names. Nothing is read here."""

from __future__ import annotations

from tfgpu_magic.monitor.driver import nvidia

SOURCES = (nvidia.SOURCE,)
"""Every source; GPUs are numbered in this order."""


def product(name: str) -> str:
    """Return the name of a GPU without its maker's."""
    for source in SOURCES:
        name = name.removeprefix(f"{source.maker} ")
    return name


def names() -> str:
    """Return the sources' names for a message: ``NVML``."""
    return " or ".join(source.name for source in SOURCES)


def makers() -> str:
    """Return the makers' names for a message: ``NVIDIA``."""
    return " or ".join(source.maker for source in SOURCES)


def checks() -> str:
    """Return the commands that show whether a driver answers, for a message: ``nvidia-smi``."""
    return " or ".join(source.check for source in SOURCES if source.check)
