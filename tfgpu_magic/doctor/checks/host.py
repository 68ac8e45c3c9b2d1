"""What this is: versions, the host's memory with the cgroups that limit it, and the variables."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from importlib import metadata

from tfgpu_magic._version import __version__
from tfgpu_magic.doctor.finding import outcome
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.frameworks.jax.settings import VARIABLES as READ_BY_JAX
from tfgpu_magic.frameworks.torch.framework import CUDA_OPTIONS, OPTIONS
from tfgpu_magic.ground.message import Message, Severity
from tfgpu_magic.ground.units import BINARY
from tfgpu_magic.machine import host_memory as memory
from tfgpu_magic.policy import CEILING, POLICY, process_state

FOUND = outcome(
    "system.found",
    Severity.GOOD,
    "tfgpu_magic {version}, Python {python}, Linux {kernel} on {processor}, {cpus} CPUs. Installed: {packages}.",
)

_PACKAGES = ("ipython", "ipykernel", "jupyter_server", "jupyterlab", "notebook", "tensorflow", "torch", "jax")


def system(machine: ThisMachine) -> Iterator[Message]:  # noqa: ARG001  # this interpreter is asked
    """Yield the versions."""
    yield FOUND(
        version=__version__,
        python=platform.python_version(),
        kernel=platform.release(),
        processor=platform.machine(),
        cpus=os.cpu_count(),
        packages=list(_installed()),
    )


def _installed() -> Iterator[str]:
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield f"{package} {metadata.version(package)}"


# --- memory ---

LEAST = 2 * BINARY["GiB"]
"""Bytes below which programs are soon killed: TensorFlow's import takes 0.6 GiB, and an isolated call a copy of it."""

MEMORY_FREE = outcome(
    "host_memory.free", Severity.GOOD, "{left_bytes} of the {limit_bytes} of {where} may still be used."
)
MEMORY_SHORT = outcome(
    "host_memory.short",
    Severity.WARNING,
    "Only {left_bytes} of the {limit_bytes} of {where} may still be used.",
    "The kernel kills what takes more, without a word: TensorFlow's import alone takes 0.6 GiB. End what uses it, or "
    "ask for more where a limit is set: the job, the container, the Hub's spawner.",
)


def host_memory(machine: ThisMachine) -> Iterator[Message]:
    """Yield the free memory of the machine, or of the cgroup that has the least."""
    sizes = memory.machine(machine.root / "proc")
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    if total is None or available is None:
        return
    limits = memory.limits(machine.root / "proc", machine.root / "sys/fs/cgroup")
    rooms = [(one.free, one.most, f"the cgroup {one.cgroup}") for one in limits if one.most < total]
    left, limit, where = min([(available, total, "this machine"), *rooms])
    yield (MEMORY_FREE if left >= LEAST else MEMORY_SHORT)(left_bytes=left, limit_bytes=limit, where=where)


# --- variables ---

VARIABLE_SET = outcome("environment.set", Severity.GOOD, "{name}={value}")

VARIABLES = (
    *process_state.VARIABLES,
    *READ_BY_JAX,
    OPTIONS,
    CUDA_OPTIONS,
    POLICY,
    CEILING,
    "TFGPU_MAGIC_DIR",
    "TFGPU_SIMGPU",
    "KERAS_BACKEND",
    "LD_LIBRARY_PATH",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
)
"""The variables that are read."""


def environment(machine: ThisMachine) -> Iterator[Message]:
    """Yield the variables that are set; no other is read."""
    for name in VARIABLES:
        if name in machine.environ:
            yield VARIABLE_SET(name=name, value=machine.environ[name])
