"""`measure` agrees with the trace of TensorFlow's allocator to the byte, on programs of every shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import tfgpu_magic
from tests.insight.allocations import Trace, mark, traced
from tests.insight.programs import PROGRAMS
from tests.machines import machine_of
from tests.processes import run
from tests.tf.on_machine import touch_every_gpu
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x16GiB")


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

    def measured(program: str, name: str) -> _Block:
        blocks[program][name] = _Block(f"{name} in {program}")
        return blocks[program][name]

    def run_all() -> None:
        touch_every_gpu()
        for program in PROGRAMS:
            program(partial(measured, program.__name__))

    tfgpu_magic.apply("split 4GiB 4GiB")
    touch_every_gpu()
    trace = traced(run_all)
    return {program: {name: block.peaks(trace) for name, block in named.items()} for program, named in blocks.items()}


@pytest.fixture(scope="module")
def found(machine: Machine) -> dict[str, dict[str, Peaks]]:
    peaks: dict[str, dict[str, Peaks]] = run(machine, compared)
    return peaks


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_peak_is_the_most_in_use_by_the_trace_of_tensorflows_allocator(
    found: dict[str, dict[str, Peaks]], program: Callable[..., None]
) -> None:
    blocks = found[program.__name__]

    assert blocks
    for name, peaks in blocks.items():
        assert [*peaks.measured] == ["GPU:0", "GPU:1"]
        for gpu, peak in peaks.measured.items():
            assert peaks.least[gpu] <= peak <= peaks.most[gpu], name
