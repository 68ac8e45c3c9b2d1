"""The sources of figures: the one table of them, and what follows from it for those who look. Nothing is asked here."""

from __future__ import annotations

from tfgpu_magic.monitor import nvidia

SOURCES = (nvidia.SOURCE,)
"""Every source; GPUs are numbered in this order."""


def product(name: str) -> str:
    """Return the name of a GPU without its maker's."""
    for source in SOURCES:
        name = name.removeprefix(f"{source.maker} ")
    return name


def names() -> str:
    """Say what is asked: ``NVML``."""
    return " or ".join(source.name for source in SOURCES)


def makers() -> str:
    """Say whose GPUs are looked for: ``NVIDIA``."""
    return " or ".join(source.maker for source in SOURCES)


def checks() -> str:
    """Say by which commands a person sees whether a driver answers: ``nvidia-smi``."""
    return " or ".join(source.check for source in SOURCES if source.check)
