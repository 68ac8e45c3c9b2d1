"""One look at the GPUs now, from a process that must never wait for the driver: a child process runs `nvml`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfgpu_magic import probe
from tfgpu_magic.model.said import say
from tfgpu_magic.probe import Probe, any_hangs

if TYPE_CHECKING:
    from tfgpu_magic.model.snapshot import Snapshot

# -c and not the file's path: Python keeps the bytecode of what is imported, not of the script it runs.
# No garbage collection: a child that lives 40 ms and imports 10,000 objects has none to collect (3 ms).
CODE = (
    "import gc, sys; gc.disable(); sys.path += sys.argv[1:]; from tfgpu_magic.monitor.driver.nvml import main; main()"
)
"""What a look runs: it has the driver open, and holds no memory."""


LOOK_TIMEOUT = probe.PATIENCE
"""Seconds to wait where a snapshot is required, as before a policy is judged, and not only welcome."""

SHOW_LATE_FOR = 30.0
"""Seconds for which a snapshot that came too late is shown, while a new one is on its way."""

_SLOW_AFTER = 3.0  # seconds: a machine that is busy may take one to start a process, and that is no driver's fault

_late: Probe | None = None
"""A process that did not answer in time, and may yet; the next look waits for it too, and not for another."""
_came_late: Snapshot | None = None
"""The snapshot that such a process gave at last."""


def look(timeout: float = 1.5, *, slow: Callable[[], None] | None = None, before: Snapshot | None = None) -> Snapshot:
    """Read all GPUs now, within `timeout`.

    Args:
        timeout: seconds to wait, the start of the child process included.
        slow: called once where it takes more than three seconds.
        before: what is shown where the driver does not answer in time, unless it is too old.

    Returns:
        The snapshot; its `error` says in words why there is none. Nothing that the driver does raises. A process that
        takes longer goes on: a later look gets its snapshot.
    """
    return PendingLook(timeout).result(slow, before)


def still_asked() -> bool:
    """Tell whether a driver that was too slow for a look is still being asked, so that the next one may succeed."""
    return _late is not None and not _late.done


class PendingLook:
    """A look that has begun, so that other work can be done until its result is there.

    A child process reads the GPUs, because a call into a driver can hang for good. While one hangs, no other is
    started: it would only hang beside it. This process never opens the driver.

    Args:
        timeout: seconds from now until there is a result in any case.
    """

    def __init__(self, timeout: float = 1.5) -> None:
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._child: Probe | None = None
        self._trouble = ""
        try:
            self._child = _still_asking()
            if self._child is None and any_hangs(min(0.2, timeout)):
                self._trouble = say(
                    "NVML does not answer: an earlier call hangs in the driver. A reboot may be needed."
                )
            elif self._child is None:
                self._child = Probe(["-c", CODE, *probe.nvml_path()])
        except OSError as error:  # no memory or no processes left
            self._trouble = say("NVML was not asked: no process could be started ({why}).", why=error.strerror)

    def result(self, slow: Callable[[], None] | None = None, before: Snapshot | None = None) -> Snapshot:
        """Wait for the snapshot until the timeout, and return it; its `error` says in words why there is none.

        Args:
            slow: called once where it takes more than three seconds.
            before: as `look` has it.
        """
        global _late
        asked = self._child
        if asked is None:
            return _failed(self._trouble)
        try:
            return self._read(asked, slow)
        except TimeoutError:
            if asked.done or self._timeout >= asked.patience:
                return _failed(
                    say(
                        "NVML did not answer within {seconds} s: the driver hangs, or takes longer to start. Try "
                        "nvidia-smi.",
                        seconds=f"{asked.patience:.0f}",
                    )
                )
            _late = asked
            old = max(filter(None, (_came_late, before)), key=lambda one: one.time, default=None)
        if old is None or time.time() - old.time > SHOW_LATE_FOR:
            return _failed(
                say(
                    "NVML did not answer within {seconds} s. A driver that nothing keeps awake takes some seconds "
                    "to start, and it is still being asked: say it again. nvidia-smi shows whether it hangs.",
                    seconds=f"{self._timeout:g}",
                )
            )
        age = f"{max(1.0, time.time() - old.time):.0f}"
        note = say("These figures are {seconds} s old: the driver is slow to answer.", seconds=age)
        return old._replace(notes=(*old.notes, note))

    def _read(self, asked: Probe, slow: Callable[[], None] | None) -> Snapshot:
        if slow is not None and self._deadline - time.monotonic() > _SLOW_AFTER:
            with contextlib.suppress(TimeoutError):
                return _read(*asked.answer(_SLOW_AFTER))
            if not asked.done:
                slow()
        return _read(*asked.answer(self._deadline - time.monotonic()))


def _still_asking() -> Probe | None:
    """Return the process that was too slow for an earlier look, if it has not answered since."""
    global _late, _came_late
    late = _late
    if late is None or not late.done:
        return late
    _late = None
    with contextlib.suppress(TimeoutError):
        _came_late = _read(*late.answer(0.0))
    return None


def _read(out: str, err: str, code: int) -> Snapshot:
    lines = out.splitlines()[-1:]  # a library may print too, before the snapshot
    try:
        return _snapshots().from_json(lines[0] if lines else "")
    except ValueError:
        why = (err.strip().splitlines() or [f"exit status {code}"])[-1]
        return _failed(say("NVML gave no answer: the process that asked it ended without one ({why}).", why=why))


def _failed(error: str) -> Snapshot:
    return _snapshots()(time=time.time(), error=error)


def _snapshots() -> type[Snapshot]:
    from tfgpu_magic.model.snapshot import Snapshot  # speed of a first `%tf_gpu` line: the child starts before

    return Snapshot
