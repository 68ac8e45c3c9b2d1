"""Isolated functions of a module that every process can import."""

from __future__ import annotations

import os

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


@isolated
def parallel() -> tuple[int, int, int]:
    """Call and submit another isolated function: the process of each."""
    return os.getpid(), where(), where.submit().result()


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
