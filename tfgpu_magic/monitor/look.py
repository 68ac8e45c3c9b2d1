"""One look at the GPUs now, from a process that must never wait for a driver. What is read there, nvml.py knows."""

from __future__ import annotations

import os
import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path

from tfgpu_magic.child import Child, any_hangs
from tfgpu_magic.monitor.snapshot import Snapshot

# -c and not the file's path: Python keeps the bytecode of what is imported, not of the script it runs.
# No garbage collection: a child that lives 40 ms and imports 10,000 objects has none to collect (3 ms).
_CODE = "import gc, sys; gc.disable(); sys.path += sys.argv[1:]; from tfgpu_magic.monitor.nvml import main; main()"


def look(timeout: float = 1.5) -> Snapshot:
    """Read all GPUs now, and never take longer than `timeout`.

    Args:
        timeout: seconds to wait, the start of the process that looks included.

    Returns:
        The snapshot; its `error` says in words why there is none. Nothing that the driver does raises.
    """
    with Looking(timeout) as looking:
        return looking.result()


class Looking:
    """A look that has begun, so that other work can be done until its result is there. Leaving the context ends it.

    A child process looks, because an NVML call can hang for good. While one hangs no other is started: it would only
    hang beside it. This process never imports pynvml, whose state other packages share and patch.

    Args:
        timeout: seconds from now until there is a result in any case.
    """

    def __init__(self, timeout: float = 1.5) -> None:
        self._timeout = timeout
        self._child: Child | None = None
        self._trouble = ""
        try:
            if any_hangs(min(0.2, timeout)):
                self._trouble = "NVML does not answer: an earlier call hangs in the driver. A reboot may be needed."
            else:
                self._child = Child(["-c", _CODE, *search_path()], timeout)
        except ImportError as error:
            self._trouble = str(error)
        except OSError as error:  # no memory or no processes left
            self._trouble = f"NVML was not asked: no process could be started ({error.strerror})."

    def result(self) -> Snapshot:
        """Wait for the snapshot, until the timeout; its `error` says in words why there is none."""
        if self._child is None:
            return _failed(self._trouble)
        try:
            return _read(*self._child.answer())
        except TimeoutError:
            seconds = f"{self._timeout:g} s"
            return _failed(f"NVML did not answer within {seconds}. The driver hangs or is very busy: try nvidia-smi.")

    def __enter__(self) -> Looking:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.__exit__()


def search_path() -> list[str]:
    """Say where the child finds this package and pynvml, which is looked up and not imported.

    A file of that name beside a notebook is not it: it would serve every view of the user.
    """
    here = _here()
    folders = [folder for folder in sys.path if folder and os.path.normpath(os.path.join(here, folder)) != here]  # noqa: PTH118
    spec = PathFinder.find_spec("pynvml", folders)
    if spec is None or spec.origin is None:
        raise ImportError("NVML was not asked: pynvml is not installed here. Run: pip install nvidia-ml-py.")
    pynvml = Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]
    return [str(Path(__file__).parents[2]), str(pynvml)]


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # it was removed
        return ""


def _read(out: str, err: str, code: int) -> Snapshot:
    lines = out.splitlines()[-1:]  # a library may print too, before us
    try:
        return Snapshot.from_json(lines[0] if lines else "")
    except ValueError:
        why = (err.strip().splitlines() or [f"exit status {code}"])[-1]
        return _failed(f"NVML gave no answer: the process that asked it ended without one ({why}).")


def _failed(error: str) -> Snapshot:
    return Snapshot(time=time.time(), error=error)
