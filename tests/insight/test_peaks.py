"""`measure` agrees with the trace of TensorFlow's allocator to the byte, on programs whose peaks are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.insight.compared import Peaks, compared
from tests.insight.programs import PROGRAMS
from tests.machines import machine_of
from tests.processes import run
from tests.sizes import MIB
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x16GiB")


@pytest.fixture(scope="module")
def found(machine: Machine) -> dict[str, dict[str, Peaks]]:
    peaks: dict[str, dict[str, Peaks]] = run(machine, compared)
    return peaks


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_peak_is_the_most_in_use_by_the_trace_of_tensorflows_allocator(
    found: dict[str, dict[str, Peaks]], program: Callable[..., None]
) -> None:
    blocks = found[program.__name__]
    wrong = [
        (name, gpu, peaks.least[gpu], peak, peaks.most[gpu])
        for name, peaks in blocks.items()
        for gpu, peak in peaks.measured.items()
        if not peaks.least[gpu] <= peak <= peaks.most[gpu]
    ]

    assert wrong == []
    assert [*blocks] == [*PROGRAMS[program]]
    assert all([*peaks.measured] == ["GPU:0", "GPU:1"] for peaks in blocks.values())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_peak_is_what_arithmetic_says_but_for_the_allocators_rounding(
    found: dict[str, dict[str, Peaks]], program: Callable[..., None]
) -> None:
    blocks = found[program.__name__]
    beyond = {
        name: [peak - mib * MIB for peak, mib in zip(blocks[name].measured.values(), known, strict=True)]
        for name, known in PROGRAMS[program].items()
    }

    assert all(0 <= rest < MIB for rests in beyond.values() for rest in rests), beyond
