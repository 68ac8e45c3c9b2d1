"""The stand-in for the CUDA driver keeps the real one's rules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.processes import program, run
from tests.simgpu.on_machine import (
    NOT_INITIALIZED,
    after_fork,
    allocate,
    before_cu_init,
    context_state,
    mapped,
    seen,
    told_mode,
)
from tests.sizes import CONTEXT, GIB, MIB
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]
NO_DEVICE = 100
OUT_OF_MEMORY = 2
UNAVAILABLE = 46
UNKNOWN = 999


def test_nothing_works_before_cu_init_nor_in_a_child_forked_after_it() -> None:
    with Machine.create() as machine:
        assert run(machine, before_cu_init) == [NOT_INITIALIZED] * 4
        assert run(machine, after_fork) == [NOT_INITIALIZED] * 2


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2]),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 2", [1, 2]),
        ("1,7,0", [1]),
        ("0,-1,1", [0]),
        ("0,nonsense,1", [0]),
        ("-1", []),
        ("", []),
        ("1,1", []),
        ("GPU-{2}", [2]),
        ("GPU-{1:.8},0", [1, 0]),
        ("GPU-", []),
        ("GPU-00000000-dead", []),
    ],
)
def test_cuda_visible_devices_chooses_orders_and_stops_at_the_first_bad_entry(
    visible: str | None, expected: list[int]
) -> None:
    with Machine.create("3x8GiB") as machine:
        uuids = [gpu.uuid.removeprefix("GPU-") for gpu in machine.gpus()]
        env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible.format(*uuids)}

        outcome, found = run(machine, seen, env=env)

    assert found == [uuids[index].replace("-", "") for index in expected]
    assert outcome == (0 if expected else NO_DEVICE)


@pytest.mark.parametrize(
    ("order", "expected"), [(None, [2, 1, 0, 3]), ("FASTEST_FIRST", [2, 1, 0, 3]), ("PCI_BUS_ID", [0, 1, 2, 3])]
)
def test_cuda_numbers_the_fastest_first_unless_told_to_follow_the_bus(order: str | None, expected: list[int]) -> None:
    with Machine.create("8GiB,16GiB,8GiB:sm=64,80GiB:mhz=700") as machine:
        uuids = [gpu.uuid.removeprefix("GPU-").replace("-", "") for gpu in machine.gpus()]

        _, found = run(machine, seen, env={"CUDA_DEVICE_ORDER": order} if order else {})

    assert found == [uuids[index] for index in expected]


def test_cuda_sees_one_mig_instance() -> None:
    with Machine.create("40GiB:mig=2") as machine:
        gpu, first, second = machine.gpus()
        names = [device.uuid[4:].replace("-", "") for device in (first, second)]

        assert [first.label, second.label] == ["0.1", "0.2"]
        assert first.total == gpu.total // 2
        assert run(machine, seen) == (0, names[:1])
        assert run(machine, seen, env={"CUDA_VISIBLE_DEVICES": f"{second.uuid},{first.uuid}"}) == (0, names[1:])


def test_a_context_costs_memory_until_it_is_released() -> None:
    with Machine.create("8GiB", context=300 * MIB) as machine:
        assert run(machine, context_state) == [(0, 0), (0, 1), (0, 0)]
        with program(machine, allocate, 64 * MIB) as holder:
            assert machine.held(pid=holder.pid) == 364 * MIB


@pytest.mark.smoke
def test_a_full_gpu_answers_out_of_memory_even_to_a_context() -> None:
    with Machine.create("8GiB:reserved=0MiB") as machine:
        with program(machine, allocate, 7 * GIB, GIB, GIB - CONTEXT, 1) as first:
            assert first.answer == [0, 0, 0, OUT_OF_MEMORY, 0, OUT_OF_MEMORY]
            assert machine.gpus()[0].free == 0
            assert run(machine, allocate) == [0, OUT_OF_MEMORY]
        assert run(machine, allocate, 7 * GIB) == [0, 0, 0]


def test_mapped_memory_is_held_until_neither_a_handle_nor_a_mapping_is_left() -> None:
    with Machine.create("1GiB") as machine:
        assert run(machine, mapped, 512 * MIB) == [512 * MIB + CONTEXT, 512 * MIB + CONTEXT, 0, CONTEXT]
        assert run(machine, mapped, GIB) == [OUT_OF_MEMORY]


def test_a_lost_gpu_fails_and_the_others_work_and_a_fault_can_strike_them_too() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.lose(0)
        uuids = [gpu.uuid.removeprefix("GPU-").replace("-", "") for gpu in machine.gpus()]
        assert run(machine, seen) == (0, uuids[1:])
        assert run(machine, allocate, GIB) == [0, 0, 0]

        machine.restore(0)
        assert run(machine, seen) == (0, uuids)
        machine.fault("cuMemAlloc", UNKNOWN)
        assert run(machine, allocate, MIB) == [0, 0, UNKNOWN]


def test_a_dead_process_gives_its_memory_back_even_as_a_zombie() -> None:
    with Machine.create() as machine:
        neighbour = machine.add_neighbour("3GiB@0")
        assert machine.held() == 3 * GIB

        os.kill(neighbour.pid, signal.SIGKILL)
        os.waitid(os.P_PID, neighbour.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet waited for

        assert machine.held() == 0
        assert machine.processes() == []


def test_a_program_that_replaces_itself_starts_with_nothing() -> None:
    with Machine.create() as machine:
        code = "from tests.simgpu.on_machine import *; become_another_program()"
        child = machine.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)

        assert child.stdout.strip() == "[0, 0, 0]"


def test_killing_programs_that_allocate_wedges_nobody() -> None:
    code = "from tests.simgpu.on_machine import *; allocate_for_ever()"
    with Machine.create() as machine:
        for _ in range(8):
            children = [machine.popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
            deadline = time.monotonic() + 240
            while len(machine.processes()) < 2 and time.monotonic() < deadline:
                time.sleep(0.005)
            for child in children:
                child.kill()
                child.wait()
            assert machine.held() == 0
        assert run(machine, allocate, 7 * GIB) == [0, 0, 0]


def test_programs_that_compete_never_get_more_than_there_is_and_leave_nothing() -> None:
    code = "from tests.simgpu.on_machine import *; print(*allocate_and_free(3 * 1024 * MIB, 2000))"
    with Machine.create("8GiB:reserved=0MiB") as machine:
        command = [sys.executable, "-c", code]
        racers = [machine.popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        for racer in racers:
            fitted, most = map(int, racer.communicate()[0].split())
            assert fitted > 0
            assert 3 * GIB <= most <= 8 * GIB

        assert machine.held() == 0


def test_nothing_of_it_is_on_outside() -> None:
    with Machine.create():
        assert "TFGPU_SIMGPU" not in os.environ
        assert Machine.current() is None
        code = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
        outside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        if not outside.returncode:
            pytest.skip("there is a real driver here")

    assert "cannot open shared object file" in outside.stderr


def test_the_libraries_without_a_machine_are_a_machine_without_a_driver() -> None:
    with Machine.create() as machine:
        environment = machine.environ()
        del environment["TFGPU_SIMGPU"]
        code = "from ctypes import CDLL; print(CDLL('libcuda.so.1').cuInit(0), CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
        leaked = subprocess.run(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )

    assert leaked.stdout.split() == [str(NO_DEVICE), "9"]


def test_a_compute_mode_is_told_and_keeps_other_processes_from_the_gpu() -> None:
    with Machine.create("8GiB,8GiB:mode=exclusive,8GiB:mode=prohibited") as machine:
        assert [run(machine, told_mode, gpu) for gpu in range(3)] == [[mode, mode] for mode in (0, 3, 2)]
        with machine.add_neighbour("1GiB@0"), machine.add_neighbour("1GiB@1") as holder:
            assert [run(machine, partial(allocate, ordinal=gpu))[1] for gpu in range(3)] == [
                0,
                UNAVAILABLE,
                UNAVAILABLE,
            ]
            holder.resize("2GiB")
        assert run(machine, partial(allocate, ordinal=1)) == [0, 0]
