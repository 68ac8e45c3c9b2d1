"""One look at the GPUs now, from a process that must never wait for a driver. What is read there, nvml.py knows."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import threading
import time
from pathlib import Path

from tfgpu_magic.monitor.snapshot import Snapshot

# -c and not the file's path: Python keeps the bytecode of what is imported, not of the script it runs.
# No garbage collection: a child that lives 40 ms and imports 10,000 objects has none to collect (3 ms).
_CHILD = "import gc, sys; gc.disable(); sys.path += sys.argv[1:]; from tfgpu_magic.monitor.nvml import main; main()"

_hung: list[subprocess.Popen[str]] = []
"""Children that were killed and have not died: a call in the driver holds them in uninterruptible sleep."""


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
    """A look that has begun, so that other work can be done until its result is there.

    A child process looks, because an NVML call can hang for good, even beyond the reach of SIGKILL; then only the child
    hangs. While one does, no other is started: it would only hang beside it. This process never imports pynvml, whose
    state other packages share and patch. Any thread may look. Leaving the context ends the look.

    Args:
        timeout: seconds from now until there is a result in any case.
    """

    def __init__(self, timeout: float = 1.5) -> None:
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._child: subprocess.Popen[str] | None = None
        self._trouble = ""
        try:
            self._start([sys.executable, "-I", "-S", "-c", _CHILD, *_search_path()])
        except ImportError as error:
            self._trouble = str(error)
        except OSError as error:  # no memory or no processes left
            self._trouble = f"NVML was not asked: no process could be started ({error.strerror})."

    def result(self) -> Snapshot:
        """Wait for the snapshot, until the timeout; its `error` says in words why there is none."""
        if self._child is None:
            return _failed(self._trouble)
        try:
            out, err = self._child.communicate(timeout=max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            seconds = f"{self._timeout:g} s"
            return _failed(f"NVML did not answer within {seconds}. The driver hangs or is very busy: try nvidia-smi.")
        return _read(out, err, self._child.returncode)

    def __enter__(self) -> Looking:
        return self

    def __exit__(self, *_: object) -> None:  # a KeyboardInterrupt passes here too
        if self._child is not None and self._child.returncode is None:
            _leave(self._child)

    def _start(self, command: list[str]) -> None:
        if _hanging(min(0.2, self._timeout)):
            self._trouble = "NVML does not answer: an earlier call still hangs in the driver. A reboot may be needed."
            return
        # -I and -S skip environment, user site and .pth files, which may run any code and cost more than all the rest.
        # A session of its own: Ctrl-C and Jupyter's interrupt go to a whole process group, and are not for the child.
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )


def _hanging(patience: float) -> bool:
    """Tell whether a killed child is still there; one that can die does so in milliseconds."""
    for child in _hung.copy():  # a thread may take one out meanwhile
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            return True
    return False


def _search_path() -> list[str]:
    """Say where the child finds this package and pynvml, which is looked up and not imported."""
    try:
        spec = importlib.util.find_spec("pynvml")
    except ValueError:  # someone put a stand-in without a spec into sys.modules
        spec = None
    if spec is None or spec.origin is None:
        raise ImportError("NVML was not asked: pynvml is not installed here. Run: pip install nvidia-ml-py.")
    pynvml = Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]
    return [str(Path(__file__).parents[2]), str(pynvml)]


def _read(out: str, err: str, code: int) -> Snapshot:
    lines = out.splitlines()[-1:]  # a library may print too, before us
    try:
        return Snapshot.from_json(lines[0] if lines else "")
    except ValueError:
        why = (err.strip().splitlines() or [f"exit status {code}"])[-1]
        return _failed(f"NVML gave no answer: the process that asked it ended without one ({why}).")


def _leave(child: subprocess.Popen[str]) -> None:
    """Kill a child and don't wait: a thread does, so that no zombie stays, and a hanging one is remembered."""
    with contextlib.suppress(OSError):
        child.kill()
    for pipe in (child.stdout, child.stderr):
        if pipe:
            pipe.close()
    _hung.append(child)
    threading.Thread(target=_reap, args=(child,), name="tfgpu_magic-reaper", daemon=True).start()


def _reap(child: subprocess.Popen[str]) -> None:
    child.wait()
    _hung.remove(child)


def _failed(error: str) -> Snapshot:
    return Snapshot(time=time.time(), error=error)
