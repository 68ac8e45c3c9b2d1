"""Puts the errors of NVML, and of nvidia-ml-py, in words for people."""

from __future__ import annotations

import errno
import os

from tfgpu_magic.ground.process_kind import SIMULATED

LIBRARY = "libnvidia-ml.so.1"
DEVICE, MODULE = "/dev/nvidiactl", "/proc/driver/nvidia/version"
"""The file by which the driver's libraries reach the kernel module, and one that is there while that is loaded."""

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
    9: (
        "The NVIDIA driver is not loaded: its library was opened, and no kernel module answered. "
        "Load it (modprobe nvidia) until nvidia-smi lists the GPUs."
    ),
    NO_LIBRARY: (
        f"No NVIDIA driver was found: its library {LIBRARY} could not be opened. "
        "Install the driver, or start the container with its GPUs (docker run --gpus all ...)."
    ),
    18: (
        "The NVIDIA driver changed under the running system: its library and its kernel module are of different "
        "versions. Reload the module, or reboot."
    ),
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


def no_library(why: str) -> str:
    """Return why nothing can be read without nvidia-ml-py, with what is here instead, and what to do."""
    return (
        f"The GPUs cannot be read without nvidia-ml-py 12.535 or later: {why}. Install it:   "
        "pip uninstall --yes pynvml; pip install --force-reinstall 'nvidia-ml-py>=12.535'"
    )


def start_error(code: int, words: str | None) -> str:
    """Return why NVML did not start or counts no GPUs, and what to do.

    Args:
        code: NVML's code.
        words: NVML's own words for the code, if it has any.
    """
    why = "" if code in (NO_LIBRARY, NO_GPU, 18) else _no_access()
    if why := why or _START.get(code, ""):
        return why
    return f"NVML does not start: {_known_error(code, words)}. See whether nvidia-smi says more."


def _no_access() -> str:
    """Return why this process cannot open the driver's device file, as in some containers; nothing if it can."""
    machine = os.environ.get(SIMULATED)
    file, module = (DEVICE, MODULE) if machine is None else (machine, f"{machine}.nvidia-version")
    try:
        os.close(os.open(file, os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.EPERM:  # by the rules of a cgroup
            return (
                f"The kernel denies this process {file} ({error.strerror}), as in a container that has lost its "
                "devices when `systemctl daemon-reload` ran on the host. Programs that use its GPUs already go on. "
                "Restart the container."
            )
        if error.errno == errno.ENOENT and os.path.exists(module):
            return (
                f"The NVIDIA driver is loaded, and this process has no {file}. In a container, start it with its GPUs "
                "(docker run --gpus all ...); elsewhere, `sudo nvidia-smi` makes the file."
            )
    return ""


def _known_error(code: int, words: str | None) -> str:
    return f"{words} (error {code})" if words else f"error {code}"


def read_error(code: int, words: str | None) -> str:
    """Return why a figure of one GPU is missing, in half a sentence; code and words are as in `start_error`."""
    return _GPU.get(code) or f"the driver answers: {_known_error(code, words)}"


def invalid_rows(labels: list[str]) -> str:
    """Return the note that rows of these GPUs were left out."""
    return (
        f"The driver's list of processes is invalid on GPU {', '.join(labels)}: "
        "rows that cannot be are left out. Another version of the driver may give them right."
    )
