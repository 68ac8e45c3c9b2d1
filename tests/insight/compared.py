"""Measures the programs of `programs` while their allocator is traced: in a process on the simulated machine."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import tfgpu_magic
from tests.insight import programs
from tests.insight.allocations import Trace, mark, traced
from tests.insight.programs import PROGRAMS
from tests.sizes import MIB
from tests.tf.on_machine import touch_every_gpu


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peaks of a block, by logical GPU.

    Attributes:
        measured: as `measure` finds them.
        least: the most in use by the allocator's trace, from the end of the measurement's beginning to the beginning of
            its end.
        most: the same, with that beginning and that end.
    """

    measured: dict[str, int]
    least: dict[str, int]
    most: dict[str, int]


class _Block:
    """A block that is measured; where that begins and where it ends is marked in the trace."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._measuring = tfgpu_magic.measure(driver=False)

    def __enter__(self) -> None:
        with mark(f"begin of {self._name}"):
            self._measuring.__enter__()

    def __exit__(self, *error: Any) -> None:
        with mark(f"end of {self._name}"):
            self._measuring.__exit__(*error)

    def peaks(self, trace: Trace) -> Peaks:
        (begin, begun), (ending, end) = (trace.marks[f"{edge} of {self._name}"] for edge in ("begin", "end"))
        return Peaks(
            measured={one.name: one.peak for one in self._measuring.result.pools},
            least=trace.highest(begun, ending),
            most=trace.highest(begin, end),
        )


def compared() -> dict[str, dict[str, Peaks]]:
    """Return the peaks of each program's blocks, by the names of both."""
    blocks: dict[str, dict[str, _Block]] = {program.__name__: {} for program in PROGRAMS}

    def run_all() -> None:
        touch_every_gpu()
        for program in PROGRAMS:
            program(partial(measured, program.__name__))

    def measured(program: str, name: str) -> _Block:
        blocks[program][name] = _Block(f"{name} in {program}")
        return blocks[program][name]

    tfgpu_magic.apply("split 4GiB 4GiB")
    touch_every_gpu()
    _rehearse()
    trace = traced(run_all)
    return {program: {name: block.peaks(trace) for name, block in named.items()} for program, named in blocks.items()}


def _rehearse() -> None:
    """Run each program with little memory: what TensorFlow keeps for good is then at the beginning of its pool.

    Otherwise it lies between the programs' tensors, and the allocator gives out whole a piece that is not much larger
    than what was asked for.
    """
    programs.unit = 2**10
    for program in PROGRAMS:
        program(lambda _: contextlib.nullcontext())
    programs.unit = MIB
