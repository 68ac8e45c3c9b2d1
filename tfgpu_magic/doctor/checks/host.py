"""What this is: versions, the container, the host's memory with the cgroups that limit it, and the variables."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata

from tfgpu_magic._version import __version__
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.frameworks.jax.settings import VARIABLES as READ_BY_JAX
from tfgpu_magic.frameworks.torch.framework import CUDA_OPTIONS, OPTIONS
from tfgpu_magic.isolate import host_memory as memory
from tfgpu_magic.policy import CEILING, POLICY, process_state
from tfgpu_magic.units import BINARY

FOUND = Outcome(
    "system.found",
    Severity.GOOD,
    "tfgpu_magic {version}, Python {python}, Linux {kernel} on {processor}, {cpus} CPUs. Installed: {packages}.",
)

_PACKAGES = ("ipython", "ipykernel", "jupyter_server", "jupyterlab", "notebook", "tensorflow", "torch", "jax")


def system(machine: ThisMachine) -> Iterator[Finding]:  # noqa: ARG001  # this interpreter is asked
    """Give the versions."""
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


# --- a container ---

CONTAINER_NONE = Outcome("container.none", Severity.GOOD, "Not in a container.")
CONTAINER_INSIDE = Outcome(
    "container.inside", Severity.NOTE, "In a container of {kind}: it has the GPUs and processes that it was given."
)

_FILES = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman", "/run/systemd/container": "systemd"}
_VARIABLES = {"KUBERNETES_SERVICE_HOST": "Kubernetes", "APPTAINER_NAME": "Apptainer", "SINGULARITY_NAME": "Singularity"}
_CGROUPS = {"kubepods": "Kubernetes", "docker": "Docker", "libpod": "Podman", "lxc": "LXC", "containerd": "containerd"}


def container(machine: ThisMachine) -> Iterator[Finding]:
    """Tell by what its maker leaves in it."""
    found = containers(machine)
    yield CONTAINER_INSIDE(kind=found[0]) if found else CONTAINER_NONE()


def containers(machine: ThisMachine) -> list[str]:
    """Return the kinds of container that this may be; none where it is the machine itself."""
    kinds = [kind for name, kind in _VARIABLES.items() if name in machine.environ]
    cgroup = machine.text("/proc/self/cgroup") or ""
    kinds += [kind for name, kind in _CGROUPS.items() if re.search(rf"[/:.-]{name}\b", cgroup)]
    return kinds + [kind for file, kind in _FILES.items() if machine.text(file) is not None]


# --- memory ---

LEAST = 2 * BINARY["GiB"]
"""Bytes below which programs are soon killed: TensorFlow's import takes 0.6 GiB, and an isolated call a copy of it."""

_MORE = "The kernel kills what takes more, without a word: TensorFlow's import alone takes 0.6 GiB. End what uses it, "

MEMORY_FREE = Outcome(
    "host_memory.free",
    Severity.GOOD,
    "{available_bytes} of {total_bytes} are available, and no cgroup sets a limit here.",
)
MEMORY_LIMITED = Outcome(
    "host_memory.limited",
    Severity.GOOD,
    "{left_bytes} may still be used: the cgroup {cgroup} has {used_bytes} in use of the {limit_bytes} that it allows. "
    "The machine has {available_bytes} available.",
)
MEMORY_TIGHT = Outcome(
    "host_memory.tight",
    Severity.WARNING,
    "Only {left_bytes} may still be used: the cgroup {cgroup} has {used_bytes} in use of the {limit_bytes} that it "
    "allows.",
    f"{_MORE}or ask for more where the limit is set: the job, the container, the Hub's spawner.",
)
MEMORY_SHORT = Outcome(
    "host_memory.short",
    Severity.WARNING,
    "Only {available_bytes} of {total_bytes} are available on this machine.",
    f"{_MORE}or work elsewhere.",
)
MEMORY_UNKNOWN = Outcome(
    "host_memory.unknown", Severity.NOTE, "The system does not report it: /proc/meminfo cannot be read."
)


def host_memory(machine: ThisMachine) -> Iterator[Finding]:
    """Tell the room in the cgroup that has least of it, and on the machine."""
    sizes = memory.machine(machine.root / "proc")
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    if total is None or available is None:
        yield MEMORY_UNKNOWN()
        return
    found = memory.limits(machine.root / "proc", machine.root / "sys/fs/cgroup")
    limits = [one for one in found if one.most < total]
    of_machine = {"total_bytes": total, "available_bytes": available}
    tightest = min(limits, key=lambda one: one.left, default=None)
    if tightest is not None:
        yield (MEMORY_LIMITED if tightest.left >= LEAST else MEMORY_TIGHT)(
            cgroup=tightest.cgroup,
            left_bytes=min(tightest.left, available),
            used_bytes=max(0, tightest.used - tightest.cache),
            limit_bytes=tightest.most,
            **of_machine,
        )
    if available < LEAST:
        yield MEMORY_SHORT(**of_machine)
    elif tightest is None:
        yield MEMORY_FREE(**of_machine)


# --- variables ---

VARIABLE_SET = Outcome("environment.set", Severity.GOOD, "{name}={value}")

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


def environment(machine: ThisMachine) -> Iterator[Finding]:
    """Tell which are set; no other is read."""
    for name in VARIABLES:
        if name in machine.environ:
            yield VARIABLE_SET(name=name, value=machine.environ[name])
