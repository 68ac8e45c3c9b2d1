"""The stand-in for NVML: figures that agree with the machine's, every fault that we must live with, and use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.machines import machine_of
from tests.processes import program, run
from tests.simgpu.on_machine import drawn_then_computed, launched, nvml, probe, timed, trained, used_before_and_after
from tests.sizes import GIB, MIB
from tests.waiting import until
from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.simgpu import Machine

machine = machine_of("8GiB", scope="function")

ROOT = Path(__file__).parents[2]
UNKNOWN, LOST, NO_DRIVER, INSUFFICIENT_SIZE, NOT_SUPPORTED, NOT_FOUND = 999, 15, 9, 7, 3, 6
MEMORY_V2 = 0x02000028
COMPUTE, GRAPHICS = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"
HIDDEN = None  # what pynvml makes of 2**64 - 1


def ask(machine: Machine, function: str, *args: object, gpu: int | None = None) -> Any:
    """Return what a function of pynvml answers on the machine, or its error's code."""
    return run(machine, nvml, gpu, function, *args)


def test_memory_is_the_machines_own_account() -> None:
    with Machine.create("8GiB") as machine:
        machine.add_neighbour("3GiB@0")
        [gpu] = machine.gpus()

        first = ask(machine, "nvmlDeviceGetMemoryInfo", gpu=0)
        second = ask(machine, "nvmlDeviceGetMemoryInfo", MEMORY_V2, gpu=0)

    assert gpu.total == gpu.used + gpu.free + gpu.reserved
    assert gpu.used == 3 * GIB
    assert gpu.reserved > 0
    assert first == {"total": gpu.total, "free": gpu.free, "used": gpu.used + gpu.reserved}
    assert second == {
        "version": MEMORY_V2,
        "total": gpu.total,
        "free": gpu.free,
        "used": gpu.used,
        "reserved": gpu.reserved,
    }


def test_a_neighbour_is_a_process_that_grows_shrinks_and_ends() -> None:
    with Machine.create("2x8GiB") as machine:
        neighbour = machine.add_neighbour("3GiB@1", name="python train.py --epochs 3")
        assert machine.held(gpu=1) == machine.held(pid=neighbour.pid) == 3 * GIB
        command = Path(f"/proc/{neighbour.pid}/cmdline").read_bytes()
        assert command.split(b"\0")[:-1] == [b"python", b"train.py", b"--epochs", b"3"]

        neighbour.resize("5GiB")
        assert machine.held() == 5 * GIB
        with pytest.raises(SimulatorError, match="out of memory"):
            neighbour.resize("9GiB")
        assert machine.held() == 5 * GIB

        neighbour.stop()
        assert machine.held() == 0
        assert not Path(f"/proc/{neighbour.pid}").exists()


def test_a_neighbour_that_does_not_fit_is_refused(machine: Machine) -> None:
    with pytest.raises(SimulatorError, match="out of memory"):
        machine.add_neighbour("9GiB@0")
    with pytest.raises(SimulatorError, match="less than the context"):
        machine.add_neighbour("100MiB@0")
    with pytest.raises(SimulatorError, match="there is no GPU 3: the machine has 0"):
        machine.add_neighbour("1GiB@3")
    assert machine.processes() == []


def test_a_foreign_process_is_another_users(machine: Machine) -> None:
    foreign = machine.add_foreign("2GiB@0")
    [row] = machine.processes()

    assert (row.pid, row.held) == (foreign.pid, 2 * GIB)
    assert Path(f"/proc/{foreign.pid}").stat().st_uid != os.getuid()
    foreign.stop()
    assert machine.processes() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start programs of other users")
def test_programs_of_all_users_can_run_on_a_shared_machine() -> None:
    with Machine.create("8GiB", shared=True) as machine:
        program = machine.path.parent / "libraries/tfgpusim-neighbour"
        pipe, variables = subprocess.PIPE, machine.environ({})
        with subprocess.Popen([program], user=65534, env=variables, stdin=pipe, stdout=pipe, text=True) as theirs:
            assert theirs.stdin is not None
            assert theirs.stdout is not None
            print(f"start 0 {3 * GIB} -1", file=theirs.stdin, flush=True)
            answer = theirs.stdout.readline()
            rows = [(row.pid, row.held) for row in machine.processes()]

    assert (answer, rows) == ("ok\n", [(theirs.pid, 3 * GIB)])


def test_the_size_probe_answers_how_many_there_are(machine: Machine) -> None:
    assert run(machine, probe) == [(0, 0), (0, 0), (0, 0)]

    machine.add_neighbour("1GiB@0")
    machine.add_neighbour("1GiB@0")

    assert run(machine, probe) == [(INSUFFICIENT_SIZE, 2), (INSUFFICIENT_SIZE, 2), (0, 2)]


def test_raw_rows_make_what_odd_drivers_list(machine: Machine) -> None:
    machine.add_row(4242, 0, "1GiB")
    machine.add_row(4242, 0, "1GiB", "G")
    zero = machine.add_row(0, 0, 100 * GIB)

    assert ask(machine, COMPUTE, gpu=0) == [(4242, GIB), (0, 100 * GIB)]
    assert ask(machine, GRAPHICS, gpu=0) == [(4242, GIB)]
    zero.stop()
    assert machine.held() == GIB  # both its rows are the whole of one process
    assert [gpu.used for gpu in machine.gpus()] == [GIB]


def test_a_process_that_draws_and_computes_is_counted_once(machine: Machine) -> None:
    assert run(machine, drawn_then_computed) == (512 * MIB, 512 * MIB)


def test_eight_thousand_rows_fit_on_64_gpus() -> None:
    with Machine.create("64x8GiB") as machine:
        for number in range(8192):
            machine.add_row(100_000 + number, number % 64, "1MiB")

        assert len(ask(machine, COMPUTE, gpu=63)) == 128
        assert machine.held(gpu=63) == 128 * MIB
        with pytest.raises(SimulatorError, match="no room for another row"):
            machine.add_row(1, 0, "1MiB")


def test_all_rows_of_many_dead_processes_are_dropped() -> None:
    with Machine.create("8GiB", context=MIB) as machine:
        neighbours = [machine.add_neighbour("2MiB@0") for _ in range(150)]
        for neighbour in neighbours[:-1]:
            neighbour.stop()

        assert [row.pid for row in machine.processes()] == [neighbours[-1].pid]


def test_who_opens_the_driver_after_a_process_has_ended_finds_none_of_its_memory(machine: Machine) -> None:
    with machine.add_neighbour("3GiB@0") as neighbour:
        assert run(machine, used_before_and_after, neighbour.pid) == (3 * GIB, 0)


def test_calls_are_counted(machine: Machine) -> None:
    assert machine.calls() == {}

    ask(machine, COMPUTE, gpu=0)

    assert machine.calls() == {
        "nvmlInitWithFlags": 1,
        "nvmlDeviceGetHandleByIndex_v2": 1,
        "nvmlDeviceGetComputeRunningProcesses_v3": 1,  # nobody there: the size probe is enough
    }


def test_a_fault_is_answered_by_all_versions_of_a_function_and_on_its_gpu_only() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.fault("nvmlDeviceGetMemoryInfo", UNKNOWN, gpu=1)
        machine.fault("nvmlDeviceGetComputeRunningProcesses_v2", UNKNOWN)

        assert ask(machine, "nvmlDeviceGetMemoryInfo", gpu=1) == UNKNOWN
        assert ask(machine, "nvmlDeviceGetMemoryInfo", MEMORY_V2, gpu=1) == UNKNOWN
        assert ask(machine, "nvmlDeviceGetMemoryInfo", gpu=0)["free"]
        assert ask(machine, COMPUTE, gpu=1) == []
        assert ask(machine, f"{COMPUTE}_v2", gpu=1) == UNKNOWN

        machine.fault("nvmlDeviceGetMemoryInfo", 0, gpu=1)
        assert ask(machine, "nvmlDeviceGetMemoryInfo", gpu=1)["free"]


def test_a_hang_holds_up_nobody_else_and_a_kill_ends_it() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.hang("nvmlDeviceGetMemoryInfo", 600, gpu=0)
        code = "from tests.simgpu.on_machine import *; nvml(0, 'nvmlDeviceGetMemoryInfo')"
        stuck = machine.popen([sys.executable, "-c", code], cwd=ROOT)
        while "nvmlDeviceGetMemoryInfo" not in machine.calls():
            time.sleep(0.01)

        run(machine, nvml, 1, "nvmlDeviceGetMemoryInfo")
        run(machine, nvml, 0, COMPUTE)
        assert stuck.poll() is None  # while the others were answered
        stuck.kill()
        assert stuck.wait(240) == -9

        machine.hang("nvmlDeviceGetName", 3)
        assert run(machine, timed, "nvmlDeviceGetName", 0) >= 3
        machine.hang("nvmlDeviceGetName", 3600)
        machine.hang("nvmlDeviceGetName", 0)
        run(machine, nvml, 0, "nvmlDeviceGetName")


def test_a_lost_gpu_answers_15_and_the_others_live_on() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.lose(1)

        assert [gpu.lost for gpu in machine.gpus()] == [False, True]
        assert ask(machine, "nvmlDeviceGetMemoryInfo", gpu=1) == LOST
        assert ask(machine, "nvmlDeviceGetMemoryInfo", gpu=0)["free"]
        assert ask(machine, "nvmlDeviceGetCount") == 2

        machine.restore(1)
        assert ask(machine, "nvmlDeviceGetMemoryInfo", gpu=1)["free"]


def test_what_a_process_holds_can_be_hidden(machine: Machine) -> None:
    neighbour = machine.add_neighbour("1GiB@0")
    machine.hide_memory()

    assert ask(machine, COMPUTE, gpu=0) == [(neighbour.pid, HIDDEN)]
    machine.hide_memory(False)
    assert ask(machine, COMPUTE, gpu=0) == [(neighbour.pid, GIB)]


def test_pids_can_be_those_of_another_namespace(machine: Machine) -> None:
    neighbours = [machine.add_neighbour("1GiB@0") for _ in range(3)]
    machine.host_pids()
    rows = ask(machine, COMPUTE, gpu=0)
    pids = {pid for pid, _ in rows}
    assert len(pids) == 3
    assert all(0 < pid <= 2**22 and not Path(f"/proc/{pid}").exists() for pid in pids)
    assert {row.pid for row in machine.processes()} == {neighbour.pid for neighbour in neighbours}


def test_the_driver_can_fail_to_start_or_be_taken_away_and_comes_back(machine: Machine) -> None:
    machine.fault("nvmlInit", 18)
    assert ask(machine, "nvmlDeviceGetCount") == 18
    machine.clear_faults()
    machine.remove_driver()
    assert ask(machine, "nvmlDeviceGetCount") == NO_DRIVER
    machine.clear_faults()
    assert ask(machine, "nvmlDeviceGetCount") == 1


def test_clearing_ends_all_that_goes_wrong() -> None:
    with Machine.create("2x8GiB") as machine:
        neighbour = machine.add_neighbour("1GiB@0")
        machine.fault(COMPUTE, UNKNOWN)
        machine.hang(COMPUTE, 600, gpu=0)
        machine.lose(0)
        machine.hide_memory()
        machine.host_pids()

        machine.clear_faults()

        assert ask(machine, COMPUTE, gpu=0) == [(neighbour.pid, GIB)]


def test_a_mig_instance_has_a_handle_and_memory_of_its_own() -> None:
    with Machine.create("40GiB:mig=2") as machine:
        neighbour = machine.add_neighbour("4GiB@0.2")
        gpu, first, second = machine.gpus()

        assert ask(machine, "nvmlDeviceGetMigMode", gpu=0) == [1, 1]
        assert (gpu.used, first.used, second.used) == (4 * GIB, 0, 4 * GIB)
        [row] = machine.processes()
        assert (row.pid, row.gpu, row.instance) == (neighbour.pid, 0, 2)


def test_a_machine_is_gone_when_closed_and_its_neighbours_with_it() -> None:
    machine = Machine.create("8GiB")
    neighbour = machine.add_neighbour("1GiB@0")
    machine.close()
    machine.close()

    assert not machine.path.exists()
    assert not Path(f"/proc/{neighbour.pid}").exists()
    with pytest.raises(SimulatorError, match="is closed"):
        machine.gpus()
    with pytest.raises(SimulatorError, match="no simulated machine at"):
        Machine.attach(machine.path)


def test_a_file_that_is_no_machine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "machine").write_text("not one")
    with pytest.raises(SimulatorError, match="no machine of this version"):
        Machine.attach(tmp_path / "machine")


# What it tells of use: by the kernels that programs launch, or as the machine is told

mixed = machine_of("2x8GiB,40GiB:mig=2", scope="function")


def rates(machine: Machine, gpu: int) -> Any:
    """Return the utilisation of a GPU in percent, or an error's code."""
    answer = run(machine, nvml, gpu, "nvmlDeviceGetUtilizationRates")
    return answer["gpu"] if isinstance(answer, dict) else answer


def samples(machine: Machine, gpu: int, since: int = 0) -> Any:
    """Return each process's last sample on a GPU as (pid, percent), or an error's code."""
    answer = run(machine, nvml, gpu, "nvmlDeviceGetProcessUtilization", since)
    return [(pid, percent) for pid, _, percent, *_ in answer] if isinstance(answer, list) else answer


def test_a_process_that_launches_kernels_uses_its_gpu_for_a_moment_and_no_other(mixed: Machine) -> None:
    mixed.add_neighbour("1GiB@1")
    with program(mixed, launched) as busy:
        assert samples(mixed, 0) == [(busy.pid, 100)]
        assert samples(mixed, 1) == NOT_FOUND
        until(lambda: rates(mixed, 0) == 0)
        assert samples(mixed, 0) == [(busy.pid, 100)]  # it is there for those who have not read it
        last = run(mixed, nvml, 0, "nvmlDeviceGetProcessUtilization", 0)[0][1]
        assert samples(mixed, 0, last) == NOT_FOUND


def test_what_tensorflow_computes_is_use(mixed: Machine) -> None:
    with program(mixed, trained) as busy:
        assert samples(mixed, 0) == [(busy.pid, 100)]


def test_what_the_machine_is_told_is_what_nvml_tells(mixed: Machine) -> None:
    neighbour = mixed.add_neighbour("1GiB@0")
    row = mixed.add_row(4242, 0, "1GiB")
    mixed.use(neighbour.pid, 40)
    mixed.use(row.pid, 7)
    mixed.set_sensors(1, utilisation=12, celsius=54, watts=61.5)

    assert (rates(mixed, 0), rates(mixed, 1)) == (40, 12)
    assert sorted(samples(mixed, 0)) == sorted([(neighbour.pid, 40), (4242, 7)])
    assert run(mixed, nvml, 1, "nvmlDeviceGetTemperature", 0) == 54
    assert run(mixed, nvml, 1, "nvmlDeviceGetPowerUsage") == 61_500
    mixed.use(neighbour.pid, None)
    assert samples(mixed, 0) == [(4242, 7)]


@pytest.mark.parametrize("function", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature"])
def test_a_gpu_has_no_sensors_unless_it_is_told(mixed: Machine, function: str) -> None:
    sensor = (0,) if "Temperature" in function else ()

    assert run(mixed, nvml, 0, function, *sensor) == NOT_SUPPORTED


def test_mig_has_no_utilisation(mixed: Machine) -> None:
    assert (rates(mixed, 2), samples(mixed, 2)) == (NOT_SUPPORTED, NOT_SUPPORTED)
