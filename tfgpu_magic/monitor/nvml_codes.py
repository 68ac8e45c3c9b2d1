"""NVML's error codes in words for people: what is wrong, what was tried, what to do. `nvml` calls NVML.

The numbers are nvmlReturn_t's in nvml.h.
"""

from __future__ import annotations

OK = 0
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
TOO_SMALL = 7
NO_LIBRARY = 12
MISSING = 13
LOST = (15, 16, 999)
OTHER_VERSION = 25
NO_GPU = 28

ABSENT = (9, NO_LIBRARY, NO_GPU)
"""Codes that mean that there is nothing to read here, as opposed to a failure."""

_START = {
    4: "The NVIDIA driver refused: NVML was started without permission. Ask for access to /dev/nvidia*.",
    9: "The NVIDIA driver is not loaded: its library was opened, and no kernel module answered. "
    "Load it (modprobe nvidia) until nvidia-smi lists the GPUs.",
    NO_LIBRARY: "No NVIDIA driver was found: its library libnvidia-ml.so.1 could not be opened. "
    "Install the driver, or start the container with its GPUs (docker run --gpus all ...).",
    18: "The NVIDIA driver changed under the running system: its library and its kernel module are of different "
    "versions. Reload the module, or reboot.",
    OTHER_VERSION: "The NVIDIA driver's library is of a version that nvidia-ml-py does not know. Update nvidia-ml-py.",
    NO_GPU: "The NVIDIA driver answers, and lists no GPU. Check nvidia-smi, and that the container was given GPUs.",
}

_GPU = {
    3: "the driver does not support it on this GPU",
    4: "the driver gives no permission to read it",
    10: "the driver's answer took too long",
    15: "the GPU is lost. Others go on",
    16: "the GPU needs a reset. Others go on",
    999: "the driver does not know what is wrong (unknown error)",
}


def starting(code: int) -> str:
    """Say why NVML did not start or counts no GPUs, and what to do."""
    return _START.get(code, f"NVML does not start: it answered with error {code}. Check that nvidia-smi works.")


def reading(code: int) -> str:
    """Say why a figure of one GPU is missing, in half a sentence."""
    return _GPU.get(code, f"the driver answers with error {code}")


def invalid(labels: list[str]) -> str:
    """Say on which GPUs rows were left out."""
    return (
        f"The driver's list of processes is invalid on GPU {', '.join(labels)}: "
        "rows that cannot be are left out. Another version of the driver may give them right."
    )
