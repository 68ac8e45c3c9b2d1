"""Asks the kernel of another notebook of this user's to park itself, to come back, or to stay: only it can.

It is asked by a message like a cell's, which no page shows and no history keeps. Its answer comes with the message's
reply, in the metadata. A parked kernel runs no cell for it: the gate knows these messages (`inside.ipython`).
Source: Jupyter's messaging protocol, "Execute"; ipykernel's command line.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import queue
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.messages import ANSWER, ParkOutcome
from tfgpu_magic.parking.reported import parked
from tfgpu_magic.parking.states import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfgpu_magic.parking.reported import ParkedProcess

BEGIN_TIMEOUT = 5.0
"""Seconds in which the other kernel begins with it; later it would surprise whoever works there by then."""
ANSWER_TIMEOUT = 30.0
"""Seconds in which it is parked, or on its way by its report, or has said why not; else it has not begun."""
_ASK = "__import__('tfgpu_magic.parking.inside.notebook', fromlist=['of'])."
_OPTIONS = ("-f", "--f", "--IPKernelApp.connection_file")
_POLL = 0.5  # seconds between two looks whether the other kernel is there


def park(pid: int) -> ParkOutcome:
    """Have another notebook's kernel park itself, if no cell runs there.

    Args:
        pid: the kernel.

    Raises:
        MonitorError: it cannot be asked.
    """
    entry = parked(pid)
    if entry is not None and entry.phase is Phase.PARKED:
        return ParkOutcome(entry=entry)
    if entry is not None and entry.phase is Phase.FAILED:  # its user is to hear of that first, in a cell
        return ParkOutcome(entry=entry, refusals=(why.LOST(),))
    deadline = time.time() + BEGIN_TIMEOUT
    for outcome in _answers(pid, f"answer('park', {deadline!r})"):
        if outcome is not None:
            return replace(outcome, entry=parked(pid))
        if time.time() > deadline + ANSWER_TIMEOUT and not ((entry := parked(pid)) and entry.parked):
            return ParkOutcome(refusals=(why.BUSY(),))
    return ParkOutcome(refusals=(why.ENDED(),))


def back(
    pid: int, seconds: float | None = None, tell: Callable[[ParkedProcess], None] = lambda _: None
) -> ParkOutcome | None:
    """Have another notebook's kernel bring its state back; return None where that takes longer, and it goes on.

    Args:
        pid: the kernel.
        seconds: how long to wait; None is as long as it takes.
        tell: takes how far it is while it is waited for.

    Raises:
        MonitorError: it cannot be asked.
    """
    end = math.inf if seconds is None else time.monotonic() + seconds
    for outcome in _answers(pid, "answer('back')"):
        if outcome is not None:
            return replace(outcome, entry=parked(pid))
        if (entry := parked(pid)) is not None:
            if entry.phase is Phase.BACK:  # a cell has asked for it, too, and runs
                return ParkOutcome(entry=entry)
            tell(entry)
        if time.monotonic() > end:
            return None
    return ParkOutcome(refusals=(why.ENDED(),))


def stay(pid: int) -> ParkOutcome | None:
    """Call off what another notebook's kernel was asked to come back for; return None where it does not hear that.

    Args:
        pid: the kernel.

    Raises:
        MonitorError: it cannot be asked.
    """
    end = time.monotonic() + BEGIN_TIMEOUT
    for outcome in _answers(pid, "answer('stay')"):
        if outcome is not None or time.monotonic() > end:
            return outcome
    return ParkOutcome(refusals=(why.ENDED(),))


def connection_file(pid: int) -> Path | None:
    """Return the connection file of a kernel of this user's; None where the process is no kernel."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
        return _connection_file(words)
    return None


def _connection_file(words: Sequence[str]) -> Path | None:
    if not any("ipykernel" in word or "colab_kernel_launcher" in word for word in words):
        return None
    named = [after for word, after in itertools.pairwise(words) if word == "-f"]
    named += [word.partition("=")[2] for word in words if word.partition("=")[0] in _OPTIONS]
    return Path(named[0]) if named else None


def _answers(pid: int, call: str) -> Iterator[ParkOutcome | None]:
    """Give a kernel's answer to a call of `inside.notebook`, and None at times before; no more once it has ended."""
    from jupyter_client.blocking.client import BlockingKernelClient  # it is there where kernels are

    path, start = connection_file(pid), began(pid)
    if path is None:
        yield ParkOutcome(refusals=(why.NOT_ASKED() if start is not None else why.ENDED(),))
        return
    client = BlockingKernelClient(connection_file=str(path))
    try:
        client.load_connection_file()
        client.shell_channel.start()
        asked = client.execute(_ASK + call, silent=True, store_history=False, allow_stdin=False, stop_on_error=False)
        while began(pid) == start:
            with contextlib.suppress(queue.Empty):
                message = client.get_shell_msg(timeout=_POLL)
                if message["parent_header"].get("msg_id") == asked:
                    line = message["metadata"].get(ANSWER)
                    yield ParkOutcome(refusals=(why.NOT_ASKED(),)) if line is None else ParkOutcome.from_json(line)
                    return
            yield None
    except (OSError, ValueError, KeyError) as error:
        raise MonitorError(f"The kernel with pid {pid} cannot be asked: {error}") from error
    finally:
        client.stop_channels()
