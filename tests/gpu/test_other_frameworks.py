"""JAX and PyTorch on a real NVIDIA GPU, NVML the judge: run with ``pytest -m gpu``."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from decimal import Decimal

import pytest

import tfgpu_magic
from tests.processes import run
from tests.sizes import GIB, MIB
from tfgpu_magic import frameworks
from tfgpu_magic.config.memory import context_bytes
from tfgpu_magic.frameworks.jax_settings import variables
from tfgpu_magic.monitor.report import Figure

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("module", "grows"), [("jax_plugins", False), ("jax_plugins", True), ("torch", True)])
def test_a_limit_holds_and_its_figures_are_the_drivers(module: str, grows: bool) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    first = tfgpu_magic.look().gpus[0]
    total = (first.total or 0) - (first.reserved or 0)
    # JAX reads them, and PyTorch does not mind.
    settings = variables({"GPU": Decimal(2 * GIB) / total}, grows, {}) | {"CUDA_VISIBLE_DEVICES": "0"}
    env = {name: value for name, value in settings.items() if value is not None}

    figures, held = run(None, _use, module, 2 * GIB / total, env=env, fresh=True)

    size = {figure.what: figure.size for figure in figures}
    [taken] = [figure.size for figure in figures if figure.taken]
    assert abs(size["limit"] - 2 * GIB) < 32 * MIB
    assert 256 * MIB <= taken <= size["limit"]
    assert held is None or taken < held < taken + context_bytes(total) + 512 * MIB


def _use(module: str, fraction: float) -> tuple[tuple[Figure, ...], int | None]:
    """Have 256 MiB on the first GPU, and return the figures of the framework and what NVML accounts to this process."""
    use: Callable[[float], object] = _use_torch if module == "torch" else _use_jax
    kept = use(fraction)
    [figures] = frameworks.figures().values()
    own = [process.held for process in tfgpu_magic.look().processes if process.pid == os.getpid()]
    assert kept is not None
    return figures, own[0] if own else None


def _use_jax(_fraction: float) -> object:
    from tests.frameworks.jax_on_machine import array

    return array(256)


def _use_torch(fraction: float) -> object:
    import torch

    torch.cuda.set_per_process_memory_fraction(fraction, 0)
    return torch.zeros(256 * MIB // 4, device="cuda:0")
