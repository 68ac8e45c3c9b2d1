"""Isolated functions of a module that every process can import, and what a resident process does with them."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.isolate import on_machine as on
from tests.isolate.on_machine import Seen
from tfgpu_magic import isolated

count = 0
"""How often `counted` was called in this process."""


@isolated
def double(number: int, *, times: int = 1) -> int:
    """Return twice as much."""
    return number << times


@isolated
def fibonacci(number: int) -> tuple[int, set[int]]:
    """Return the number, and the processes that it was made in."""
    if number < 2:
        return number, {os.getpid()}
    (one, here), (other, there) = fibonacci(number - 1), fibonacci(number - 2)
    return one + other, here | there


@isolated
def counted() -> int:
    """Count in the module itself, and not in a copy of it."""
    global count
    count += 1
    from tests.isolate import functions

    assert functions.count == count
    return count


@isolated(policy="limit 1GiB")
def limited(folder: str = "", others: int = 1) -> Seen:
    return on.hold(folder, others)


@isolated(timeout="300ms")
def slow(seconds: float) -> None:
    time.sleep(seconds)


@isolated
def parallel(number: int) -> tuple[int, int, int]:
    """Submit other isolated calls, as an isolated call."""
    return os.getpid(), where(), where.submit().result() + 0 * number


@isolated
def where() -> int:
    return os.getpid()


class Trainer:
    """Something with a state."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    @isolated
    def train(self, steps: int) -> tuple[int, int]:
        """Change the state, of which this process has a copy."""
        self.factor *= 10
        return self.factor * steps, os.getpid()

    @staticmethod
    @isolated
    def still(steps: int) -> int:
        return steps

    @classmethod
    @isolated
    def named(cls, steps: int) -> str:
        return f"{cls.__name__} {steps}"


# --- in the resident process ---


def use(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call one of the functions, and return what it returns."""
    return globals()[name](*args, **kwargs)


def counts() -> tuple[list[int], int]:
    """Return what calls count, and what is counted here."""
    return [counted(), counted(), counted.submit().result()], count


def methods() -> tuple[list[tuple[int, int]], int, int, int, str, int]:
    """Return what methods return, called and submitted, and what became of the object here."""
    trainer = Trainer(2)
    trained = [trainer.train(3), trainer.train.submit(4).result(), Trainer.train(trainer, 5)]
    still = Trainer.still.submit(7).result()
    named: Any = Trainer.named  # mypy binds only functions to classes
    return trained, trainer.factor, trainer.train.__wrapped__(1)[0], still, named(8), os.getpid()


def at_home() -> tuple[list[int], int, int]:
    """Return what nested functions and lambdas return, and where the function runs that `__wrapped__` is."""
    more = 5

    @isolated
    def nested(number: int) -> int:
        return number + more if number else nested(1) * 100

    add: Callable[[int], int] = isolated(lambda number: number + more)
    return [nested(1), nested(0), nested.submit(2).result(), add(3)], where.__wrapped__(), os.getpid()


def called_by_threads(name: str, calls: int) -> list[Seen]:
    """Call from threads of this process, so that calls hold their GPUs at the same time; return what they saw."""
    seen: list[Seen] = []
    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=lambda: seen.append(globals()[name](folder, calls))) for _ in range(calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return seen


def raised(name: str, *args: Any) -> tuple[str, str]:
    """Return what a call raises: type and text."""
    try:
        globals()[name](*args)
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError("it returned")
