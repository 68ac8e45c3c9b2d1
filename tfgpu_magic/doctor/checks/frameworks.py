"""Which PyTorch and JAX are installed; neither is imported."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.installed import distributions, version_of
from tfgpu_magic.doctor.machine import Machine

INSTALLED = Outcome("installed", Severity.GOOD, "{framework} {version} is installed.")
ABSENT = Outcome("absent", Severity.GOOD, "{framework} is not installed here.")
CPU_TORCH = Outcome(
    "cpu-torch",
    Severity.NOTE,
    "PyTorch {version} is installed in its build for the CPU: it uses no GPU.",
    "Its installer has the line for a build with CUDA: https://pytorch.org/get-started/locally",
)
CPU_JAX = Outcome(
    "cpu-jax",
    Severity.NOTE,
    "JAX {version} is installed without its plug-in for CUDA: it uses no GPU.",
    "To have it:\n  pip install 'jax[cuda12]'",
)


def check(machine: Machine) -> Iterator[Finding]:
    """Tell the version of each, and whether it can use the GPUs that are here."""
    torch, jax = version_of("torch"), version_of("jax")
    on_gpus = machine.driver.works
    if torch is None:
        yield ABSENT(framework="PyTorch")
    else:
        yield (
            CPU_TORCH(version=torch)
            if on_gpus and torch.endswith("+cpu")
            else INSTALLED(framework="PyTorch", version=torch)
        )
    if jax is None:
        yield ABSENT(framework="JAX")
    else:
        with_cuda = any(distributions("jax-cuda"))
        yield INSTALLED(framework="JAX", version=jax) if with_cuda or not on_gpus else CPU_JAX(version=jax)
