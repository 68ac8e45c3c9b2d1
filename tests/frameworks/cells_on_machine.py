"""Cells in real IPythons on a simulated machine, with stand-ins for PyTorch and JAX: a fork of one process for each.

It is also that process: it reads what to do as lines of JSON, and answers with what a person sees of each cell.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.processes import PATIENCE, QUIET, Again
from tests.sizes import GIB, MIB
from tests.tf.on_machine import held
from tfgpu_magic.simgpu import Machine

STAND_IN = Path(__file__).parent / "stand_in"


def stand_in(release: str = "2.13") -> Any:
    """Import the stand-in for PyTorch, as of a release."""
    sys.path.insert(0, str(STAND_IN))
    os.environ["TORCH_STAND_IN"] = release
    return importlib.import_module("torch")


@contextlib.contextmanager
def stage(machine: Machine, *, again: bool = False) -> Iterator[Callable[[Mapping[str, str], list[str]], list[str]]]:
    """Give a function that runs cells with some variables set, and returns what a person sees of each.

    Args:
        machine: where they run.
        again: whether TensorFlow's import finds the modules of the process that is forked, which takes milliseconds.
    """
    command = [sys.executable, "-m", __name__, *(["again"] if again else [])]
    environment = {**machine.environ(), **QUIET}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asks, answers = process.stdin, process.stdout

        def play(env: Mapping[str, str], cells: list[str]) -> list[str]:
            print(json.dumps([dict(env), cells]), file=asks, flush=True)
            said: list[str] = json.loads(answers.readline())
            return said

        yield play
        asks.close()


def _main() -> None:
    from tests.magic.shell import shown  # imported once, for all forks

    again = sys.argv[1:] == ["again"]
    if again:
        importlib.import_module("tensorflow")
    importlib.import_module("tests.fork_template")
    sys.path.insert(0, str(STAND_IN))
    for line in sys.stdin:
        env, cells = json.loads(line)
        ours, theirs = os.pipe()
        if os.fork() == 0:
            signal.alarm(int(PATIENCE))
            os.environ.update(env)
            if again:
                sys.meta_path.insert(1, Again())  # behind the hook of imports, which may be there
            said = shown("import os, sys; from tests.frameworks.cells_on_machine import *", *cells)[1:]
            with os.fdopen(theirs, "w") as pipe:
                json.dump(said, pipe)
            os._exit(0)  # TensorFlow's own end takes a second
        os.close(theirs)
        with os.fdopen(ours) as pipe:
            print(pipe.read() or json.dumps(["it ended"]), flush=True)
        os.wait()


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

    found, decided = self_report.claims(self_report.brief()), LEDGER.own()
    assert decided is not None
    assert decided.had == found
    return [round((size or 0) / MIB) for size in found.values()]


if __name__ == "__main__":
    _main()
