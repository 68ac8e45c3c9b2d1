"""Cells in real IPythons on a simulated machine, with stand-ins for PyTorch and JAX: a process for each play."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.processes import run
from tests.sizes import GIB, MIB
from tests.tf.on_machine import held
from tfgpu_magic.simgpu import Machine

STAND_IN = Path(__file__).parent / "stand_in"
NAMES = "import os, sys; from tests.frameworks.cells_on_machine import *"
Play = Callable[[Mapping[str, str], list[str]], list[str]]
"""Runs cells with some variables set, and returns what a person sees of each."""


def stand_in(release: str = "2.13") -> Any:
    """Import the stand-in for PyTorch, as of a release."""
    sys.path.insert(0, str(STAND_IN))
    os.environ["TORCH_STAND_IN"] = release
    return importlib.import_module("torch")


@contextlib.contextmanager
def stage(machine: Machine, *, again: bool = False) -> Iterator[Play]:
    """Give what runs cells on a machine, where the stand-ins are installed.

    Args:
        machine: where they run.
        again: whether TensorFlow's import finds the modules of the process that is forked, which takes milliseconds.
    """
    begin = f"{NAMES}; sys.path.insert(0, str(STAND_IN))"
    yield lambda env, cells: _seen(machine, begin, cells, env, again=again)


def in_a_process(machine: Machine | str | None) -> Play:
    """Return what runs cells where the stand-ins are not installed, and TensorFlow's import takes milliseconds."""
    return lambda env, cells: _seen(machine, NAMES, cells, env, again=True)


def _seen(
    machine: Machine | str | None, begin: str, cells: list[str], env: Mapping[str, str], *, again: bool
) -> list[str]:
    from tests.magic.shell import shown

    seen: list[str] = run(machine, shown, begin, *cells, env=env, imported=False, fresh=not again)
    return seen[1:]


_kept: list[Any] = []


def take(size: int, gpu: int = 0) -> str:
    """Have PyTorch take GiB of a GPU; return what came of it."""
    torch: Any = importlib.import_module("torch")
    try:
        _kept.append(torch.zeros(size * GIB, f"cuda:{gpu}"))
    except torch.cuda.OutOfMemoryError:
        return "out of memory"
    except RuntimeError:
        return "no GPU"
    return "taken"


def mib() -> list[int]:
    """Return what is held of each GPU, in MiB."""
    return [round(size / MIB) for size in held()]


def start_jax() -> list[int]:
    """Have JAX take its part of each GPU; return what is held, in MiB."""
    importlib.import_module("jax").devices()
    return mib()


def jax_limits() -> list[int]:
    """Return the most that JAX takes of each GPU, in MiB."""
    devices = importlib.import_module("jax").devices()
    return [device.memory_stats()["bytes_limit"] // MIB for device in devices]


def start_cuda() -> None:
    """Have another library start CUDA."""
    import ctypes

    ctypes.CDLL("libcuda.so.1").cuInit(0)


def own_fraction(fraction: float) -> None:
    """Set PyTorch's fraction, as a user does."""
    importlib.import_module("torch").cuda.set_per_process_memory_fraction(fraction, 0)


def fraction() -> float:
    """Return PyTorch's fraction of the first GPU."""
    found: float = importlib.import_module("torch").cuda.get_per_process_memory_fraction(0)
    return found


def meanwhile(words: str, frameworks: Any = "tensorflow") -> None:
    """Have another thread say a policy while the next import looks at the GPUs."""
    from tfgpu_magic.engine import enforcement, engine

    look = enforcement.look_well

    def looking() -> Any:
        enforcement.look_well = look
        thread = threading.Thread(target=engine.apply, args=(words,), kwargs={"frameworks": frameworks})
        thread.start()
        thread.join()
        return look()

    enforcement.look_well = looking


def promised() -> list[int]:
    """Return what this process claims of each GPU, in MiB: as it was decided, and as what is in force has it."""
    from tfgpu_magic.claims.ledger import LEDGER
    from tfgpu_magic.frameworks import self_report

    found, decided = self_report.claims(self_report.short_report()), LEDGER.own_claim()
    assert decided is not None
    assert decided.had == found
    return [round((size or 0) / MIB) for size in found.values()]
