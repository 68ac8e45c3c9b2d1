"""The environment variables that decide what programs do with GPUs; no other is read."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.config import process_state
from tfgpu_magic.config.process_state import ALLOCATOR, DEVICE_CAP
from tfgpu_magic.config.variables import CEILING, POLICY
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine
from tfgpu_magic.frameworks import jax_settings, torch

SET = Outcome("set", Severity.GOOD, "{name}={value}")
NONE = Outcome("none", Severity.GOOD, "No variable is set that decides what programs do with GPUs.")
NO_CAP = Outcome(
    "no-cap",
    Severity.WARNING,
    "With {name}={value}, a limit of TensorFlow is no cap: it takes more as it needs it.",
    "Where limits are to hold:\n  unset {name}",
)
OWN_CAP = Outcome(
    "own-cap",
    Severity.NOTE,
    "{name}={value} caps TensorFlow on every GPU, beneath every limit. It is not documented by TensorFlow.",
)

VARIABLES = (
    *process_state.VARIABLES,
    *jax_settings.VARIABLES,
    torch.OPTIONS,
    torch.CUDA_OPTIONS,
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


def check(machine: Machine) -> Iterator[Finding]:
    """Tell which are set, and which of them do other than they seem to."""
    values = {name: machine.environ[name] for name in VARIABLES if name in machine.environ}
    for name, value in values.items():
        yield SET(name=name, value=value)
    if not values:
        yield NONE()
    if values.get(ALLOCATOR) == "cuda_malloc_async":
        yield NO_CAP(name=ALLOCATOR, value=values[ALLOCATOR])
    if DEVICE_CAP in values:
        yield OWN_CAP(name=DEVICE_CAP, value=values[DEVICE_CAP])
