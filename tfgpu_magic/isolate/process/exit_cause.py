"""How a process ended, as an error: signal, exit status, and whether the out-of-memory killer was at work."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

from tfgpu_magic.errors import WorkerDied
from tfgpu_magic.ground.message import Message, join_lines, msg, paragraph

_HERE, _SHELL = str(Path(__file__).parents[1]), "/IPython/core/"


def describe(status: int | None) -> str:
    """Return an exit status in words.

    Args:
        status: as in `subprocess`: negative for a signal; None if it is not known.
    """
    if status is None:
        return "nobody knows how"
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
    what = (signal.strsignal(-status) or "").partition(" (")[0].lower()
    return f"{name}, {what}" if what else name


def died(status: int, kills_before: int | None, kills_now: int | None, last_words: str = "") -> WorkerDied:
    """Return the error of a call whose process gave no answer.

    Args:
        status: its exit status, as in `describe`.
        kills_before: what `host_memory.oom_kills` returned before it began.
        kills_now: what `host_memory.oom_kills` returns now.
        last_words: what Python's `faulthandler` wrote when it crashed.
    """
    ended = msg("The call's process ended without an answer: {how}.", how=describe(status))
    message = join_lines((ended, *_places(last_words)))
    if status != -signal.SIGKILL:
        return WorkerDied(message, status=status, memory=False)
    if kills_before is None or kills_now is None:
        killer, memory = "Whether the kernel's out-of-memory killer sent it cannot be told here.", None
    elif kills_now > kills_before:
        killer, memory = "The kernel's out-of-memory killer was at work meanwhile: most likely memory ran out.", True
    else:
        killer, memory = "Somebody sent it; the kernel's out-of-memory killer did not.", False
    return WorkerDied(paragraph((message, killer)), status=status, memory=memory)


def interrupted(status: int | None) -> Message:
    """Return what became of an interrupted call without an answer: its exit status; None if it had to be killed."""
    if status is None:
        return msg("The call was interrupted, did not end, and was killed.")
    text = "The call was interrupted, and its process ended without an answer: {how}."
    return msg(text, how=describe(status))


def hung(pid: int) -> WorkerDied:
    """Return the error of a call whose process does not end."""
    text = (
        "The call's process (pid {pid}) does not end, even killed: it hangs in a call of the kernel, such as a "
        "driver's, and keeps what it holds."
    )
    return WorkerDied(msg(text, pid=pid))


def orphaned(status: int, server: int | None) -> WorkerDied:
    """Return the error of a call whose fork server has died, with the exit statuses of both."""
    text = (
        "The process that starts isolated calls has died ({how}), and this call with it. The next call gets a new one."
    )
    return WorkerDied(msg(text, how=describe(server)), status=status)


def _places(last_words: str) -> list[Message]:
    """Return where it crashed: the frames of the user's own code, the innermost first."""
    frames = re.findall(r'^  File "(.+)", line (\d+) in (.+)$', last_words, re.MULTILINE)
    ours = next((n for n, (file, *_) in enumerate(frames) if file.startswith(_HERE) or _SHELL in file), len(frames))
    found = [(_short(file), *where) for file, *where in frames[:ours]]
    return [
        msg("  {how} {file}, line {line}, {name}", how="in" if n else "It crashed in", file=file, line=line, name=name)
        for n, (file, line, name) in enumerate(found)
    ]


def _short(file: str) -> str:
    """Return a file's name as it is imported; of a cell, the name that IPython gives it."""
    bases = sorted((base.rstrip("/") for base in sys.path if file.startswith(f"{base.rstrip('/')}/") and base), key=len)
    name = file.removeprefix(f"{bases[-1]}/") if bases else file
    return re.sub(r"<ipython-input-(\d+)-.*>", r"Cell In[\1]", name)
