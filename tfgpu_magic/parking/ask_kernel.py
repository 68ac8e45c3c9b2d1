"""Asks the kernel of another notebook of this user's to park itself, to come back, or to stay: only it can.

It is asked by a message that evaluates an expression, which no page shows and no history keeps, and which waits for the
end of a cell that runs. A parked kernel evaluates nothing for it: the gate knows these messages (`inside.ipython`).
Source: Jupyter's messaging protocol, "Execute".
"""

from __future__ import annotations

import contextlib
import math
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Literal, TypeAlias

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.said import say
from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.messages import ANSWER, ParkOutcome
from tfgpu_magic.parking.reported import ParkedProcess, parked
from tfgpu_magic.parking.states import Phase

What: TypeAlias = Literal["park", "back", "stay"]
"""To park itself, to come back, or to stay parked, whoever has asked it to come back."""

BEGIN_TIMEOUT = 5.0
"""Seconds in which the other kernel begins to park; later it would surprise whoever works there by then."""
ANSWER_TIMEOUT = 30.0
"""Seconds in which it is parked, or on its way by its report, or has said why not; else it has not begun."""
_ASK = "__import__('tfgpu_magic.parking.inside.notebook', fromlist=['of']).answer"
_OPTIONS = ("-f", "--f", "--IPKernelApp.connection_file")  # what names the file, of whatever else ends so
_POLL = 0.5  # seconds between two looks whether the other kernel is there


def ask(
    pid: int, what: What, seconds: float = math.inf, tell: Callable[[ParkedProcess], None] = lambda _: None
) -> ParkOutcome | None:
    """Have another notebook's kernel do something, and return what came of it; None where it goes on beyond the time.

    While it is waited for, `tell` takes how far it is. One that cannot be asked is a `MonitorError`.
    """
    end = time.monotonic() + seconds
    begins = time.time() + BEGIN_TIMEOUT if what == "park" else None
    for outcome in _answers(pid, f"{_ASK}{(what, begins)!r}"):
        entry = parked(pid)
        if outcome is not None:
            return replace(outcome, entry=entry)
        if entry is not None and what == "back":
            if entry.phase is Phase.BACK:  # a cell has asked for it, too, and runs
                return ParkOutcome(entry=entry)
            tell(entry)
        if begins is not None and time.time() > begins + ANSWER_TIMEOUT:
            if entry is None or not entry.parked:
                return ParkOutcome(refusals=(why.BUSY(),))
            if entry.phase is Phase.PARKED:  # and its cell waits for room
                return ParkOutcome(entry=entry)
        if time.monotonic() > end:
            return None
    return ParkOutcome(refusals=(why.ENDED(),))


def connection_file(pid: int) -> Path | None:
    """Return the connection file of a kernel of this user's, which its command line names; None of what has none."""
    with contextlib.suppress(OSError):
        return _connection_file(Path(f"/proc/{pid}/cmdline").read_text("utf-8", "surrogateescape").split("\0"))
    return None


def _connection_file(words: Sequence[str]) -> Path | None:
    named = [one.partition("=")[::2] if one[:1] == "-" else (before, one) for before, one in pairwise(("", *words))]
    files = [(option not in _OPTIONS, file) for option, file in named if file.endswith(".json")]
    return Path(min(files, key=itemgetter(0))[1]) if files else None


def _answers(pid: int, question: str) -> Iterator[ParkOutcome | None]:
    """Give a kernel's answer to what is asked of it, and None at times before; no more once it has ended."""
    from jupyter_client.blocking.client import BlockingKernelClient  # it is there where kernels are

    path, start = connection_file(pid), began(pid)
    if path is None:
        yield ParkOutcome(refusals=(why.NOT_ASKED() if start is not None else why.ENDED(),))
        return
    client = BlockingKernelClient(connection_file=str(path))
    try:
        client.load_connection_file()
        client.shell_channel.start()
        asks = {ANSWER: question}
        asked = client.execute("", silent=True, allow_stdin=False, stop_on_error=False, user_expressions=asks)
        while began(pid) == start:
            with contextlib.suppress(queue.Empty):
                message = client.get_shell_msg(timeout=_POLL)
                if message["parent_header"].get("msg_id") == asked:
                    said = message["content"].get("user_expressions", {}).get(ANSWER, {}).get("data", {}).get(ANSWER)
                    yield ParkOutcome(refusals=(why.NOT_ASKED(),)) if said is None else ParkOutcome.from_answer(said)
                    return
            yield None
    except Exception as error:  # whatever is in that file, or is said by a kernel of another version
        raise MonitorError(say("The kernel with pid {pid} cannot be asked: {error}", pid=pid, error=error)) from error
    finally:
        client.stop_channels()
