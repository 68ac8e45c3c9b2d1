"""JAX and PyTorch, installed for CUDA, on a real NVIDIA GPU, NVML the judge: run with ``pytest -m gpu``."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest

import tfgpu_magic
from tests.frameworks import jax_on_machine
from tests.processes import run
from tests.sizes import GIB, MIB
from tfgpu_magic.frameworks import registry
from tfgpu_magic.ground.report import Figure
from tfgpu_magic.policy.memory import context_bytes

pytestmark = pytest.mark.gpu

PAGE = 2 * MIB
"""What the driver allocates in."""


@pytest.mark.parametrize(
    ("module", "words"), [("jax_plugins", "limit 2GiB"), ("jax_plugins", "limit 2GiB --grow"), ("torch", "limit 2GiB")]
)
def test_a_limit_holds_and_its_figures_are_the_drivers(module: str, words: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")

    figures, full, held, context = run(None, _fill, module, f"visible 0; {words}", fresh=True)

    size = {figure.what: figure.size for figure in figures}
    [taken] = [figure.size for figure in figures if figure.taken]
    assert full
    assert abs(size["limit"] - 2 * GIB) < 32 * MIB
    assert size["limit"] - 512 * MIB < taken <= size["limit"] + PAGE
    assert held is None or taken < held < taken + context + 512 * MIB


def _fill(module: str, words: str) -> tuple[tuple[Figure, ...], bool, int | None, int]:
    """Give a framework its limit, and have it allocate until it refuses.

    Returns:
        Its figures, whether its error is known for what it is, what NVML accounts to this process (None where it does
        not list it, as in a container), and what we reckon a context to be.
    """
    plan = tfgpu_magic.apply(words, frameworks="all")
    kept: list[Any] = []
    try:
        while True:
            kept.append(_torch_array() if module == "torch" else jax_on_machine.array(256))
    except Exception as error:
        full = registry.is_out_of_memory(error)
    [figures] = registry.figures().values()
    own = [process.held for process in tfgpu_magic.look().processes if process.pid == os.getpid()]
    return figures, full, own[0] if own else None, context_bytes(plan.devices[0].gpu.total or 0)


def _torch_array() -> Any:
    """Return an array of 256 MiB on the GPU."""
    import torch

    return torch.zeros(256 * MIB // 4, device="cuda:0")
