"""Waits only so long for a job that may hang, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_hanging: list[threading.Thread] = []


def run_within(seconds: float, job: Callable[[], T], hanging: list[threading.Thread] = _hanging) -> T | None:
    """Run a job on a thread and wait no longer than `seconds`; Ctrl-C ends the wait too.

    To read a process that a driver holds in uninterruptible sleep takes until that ends. While a job hangs, no other is
    started: it would only hang beside it.

    Args:
        seconds: the longest wait.
        job: the function to call; an exception that it raises is raised here.
        hanging: the threads whose jobs hang, of which there is another list for jobs that hang on something else.

    Returns:
        The job's result; None where it is not done.
    """
    hanging[:] = [thread for thread in hanging if thread.is_alive()]
    if hanging:
        return None
    done: list[T] = []
    trouble: list[BaseException] = []

    def work() -> None:
        try:
            done.append(job())
        except BaseException as error:  # whatever it is, the caller must get it
            trouble.append(error)

    thread = threading.Thread(target=work, name="tfgpu_magic-bounded", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # there is none to be had any more, as at the interpreter's end
        return job()
    try:
        thread.join(seconds)
    finally:
        if thread.is_alive():  # only now: a job of another thread that began meanwhile does not hang yet
            hanging.append(thread)
    if trouble:
        raise trouble[0]
    return done[0] if done else None
