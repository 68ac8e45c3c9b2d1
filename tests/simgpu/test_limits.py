"""The stand-in's limits of GPU memory by cgroup, with real cgroups and the real processes in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.cgroups import cgroup2
from tests.processes import run
from tests.simgpu.on_machine import get_limits, set_limits, told_inside, zeros_inside
from tests.sizes import GIB, MIB
from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.skipif(
    not hasattr(pynvml, "nvmlDeviceSetMemoryLimits_v1"), reason="this pynvml is older than the limits"
)
INVALID, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, NO_FUNCTION = 2, 3, 4, 6, 13
NONE = 2**64 - 1
NOBODY = 65534
OF_DRIVER = 240 * MIB
"""What of a limit no process can have."""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    with cgroup2() as folder:
        yield folder


@pytest.fixture(params=["misc", "dmem"])
def dmem(request: pytest.FixtureRequest) -> bool:
    """Whether the kernel keeps the limits, or the driver itself."""
    return bool(request.param == "dmem")


@pytest.fixture
def machine(cgroup: Path, dmem: bool) -> Iterator[Machine]:
    with Machine.create("2x16GiB") as machine:  # ends before the cgroup, and its neighbours with it
        machine.set_driver("615.71.09", dmem=dmem)
        yield machine


def limit(machine: Machine, cgroup: Path, hard: int, *, soft: int = 0, gpu: int = 0) -> None:
    """Limit a cgroup, at the second try if it has to be."""
    answer = run(machine, set_limits, cgroup, soft, hard, gpu)
    assert answer is None or run(machine, set_limits, cgroup, soft, hard, gpu) is None


def limits(machine: Machine, cgroup: Path, *, gpu: int = 0) -> Any:
    return run(machine, get_limits, cgroup, gpu)


def test_the_processes_of_a_cgroup_together_hold_no_more_than_its_limit(machine: Machine, cgroup: Path) -> None:
    limit(machine, cgroup, 4 * GIB, soft=GIB)
    machine.add_neighbour("3GiB@0", cgroup=cgroup)

    with pytest.raises(SimulatorError, match="out of memory"):
        machine.add_neighbour("1GiB@0", cgroup=cgroup)  # the driver's own part is in it, too
    small = machine.add_neighbour("512MiB@0", cgroup=cgroup)
    with pytest.raises(SimulatorError, match="out of memory"):
        small.resize(GIB - OF_DRIVER + MIB)
    small.resize(GIB - OF_DRIVER)
    small.resize("512MiB")
    machine.add_neighbour("6GiB@1", cgroup=cgroup)  # another GPU
    machine.add_neighbour("6GiB@0")  # another cgroup

    assert limits(machine, cgroup) == (GIB, 4 * GIB, 3 * GIB + 512 * MIB)
    assert limits(machine, cgroup, gpu=1) == (0, NONE, 6 * GIB)


def test_a_limit_is_raised_lowered_and_ended(machine: Machine, cgroup: Path) -> None:
    limit(machine, cgroup, 2 * GIB)
    inside = machine.add_neighbour("1GiB@0", cgroup=cgroup)
    limit(machine, cgroup, 4 * GIB)
    inside.resize("3GiB")

    limit(machine, cgroup, GIB)
    assert machine.held(pid=inside.pid) == 3 * GIB  # what is held stays
    with pytest.raises(SimulatorError, match="out of memory"):
        machine.add_neighbour("256MiB@0", cgroup=cgroup)

    limit(machine, cgroup, NONE)
    inside.resize("12GiB")
    assert limits(machine, cgroup) == (0, NONE, 12 * GIB)


def test_a_limit_ends_with_its_cgroup_and_not_with_its_name(machine: Machine, cgroup: Path) -> None:
    user = cgroup / "user"
    user.mkdir()
    limit(machine, user, 2 * GIB)
    user.rmdir()
    assert limits(machine, user) == NOT_FOUND

    user.mkdir()

    machine.add_neighbour("5GiB@0", cgroup=user)
    assert limits(machine, user) == (0, NONE, 5 * GIB)


def test_as_many_cgroups_may_come_and_go_as_will(machine: Machine, cgroup: Path) -> None:
    kept, old = cgroup / "kept", cgroup / "old"
    kept.mkdir()
    limit(machine, kept, 2 * GIB)
    assert run(machine, limited_ones_that_go, old, 600) == GIB
    assert limits(machine, kept) == (0, 2 * GIB, 0)


def limited_ones_that_go(folder: Path, count: int) -> int:
    """Make, limit and remove a cgroup so often; the last one's limit."""
    hard = 0
    for _ in range(count):
        folder.mkdir()
        set_limits(folder, 0, GIB)
        assert set_limits(folder, 0, GIB) is None
        hard = get_limits(folder)[1]
        folder.rmdir()
    return hard


def test_limits_nest_with_dmem_and_else_the_nearest_one_counts(machine: Machine, dmem: bool, cgroup: Path) -> None:
    for name in ("one", "other", "other/leaf"):
        (cgroup / name).mkdir()
    limit(machine, cgroup, 4 * GIB)
    limit(machine, cgroup / "one", 6 * GIB)
    machine.add_neighbour("2GiB@0", cgroup=cgroup / "other/leaf")
    inside = machine.add_neighbour("1GiB@0", cgroup=cgroup / "one")

    assert limits(machine, cgroup)[2] == (3 * GIB if dmem else 2 * GIB)
    if dmem:
        with pytest.raises(SimulatorError, match="out of memory"):
            inside.resize("2GiB")
    else:
        inside.resize("5GiB")
    with pytest.raises(SimulatorError, match="out of memory"):  # it has no limit of its own: the one above it counts
        machine.add_neighbour("4GiB@0", cgroup=cgroup / "other/leaf")


def test_only_a_limited_cgroup_itself_is_told_of_it(machine: Machine, cgroup: Path) -> None:
    leaf = cgroup / "leaf"
    leaf.mkdir()
    limit(machine, cgroup, 8 * GIB)
    _, whole, _ = run(machine, told_inside, leaf)
    assert whole["total"] == 16 * GIB

    limit(machine, leaf, 4 * GIB)
    machine.add_neighbour("1GiB@0", cgroup=leaf)
    machine.add_neighbour("2GiB@0")
    first, second, cuda = run(machine, told_inside, leaf)

    used = GIB + 256 * MIB  # with its own context
    assert (second["total"], second["used"], second["free"]) == (4 * GIB, used, 4 * GIB - used)
    assert cuda == [4 * GIB, 4 * GIB - used]
    assert first["total"] == 16 * GIB  # the first version of the call was left as it is
    machine.add_neighbour("12GiB@0")
    assert run(machine, told_inside, leaf)[2] == [4 * GIB, 16 * GIB - 256 * MIB - 15 * GIB - 256 * MIB]


def test_tensorflow_runs_out_of_memory_at_the_limit(machine: Machine, cgroup: Path) -> None:
    limit(machine, cgroup, 2 * GIB)
    growth = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}

    assert run(machine, zeros_inside, cgroup, 512, env=growth) == ("", "")
    error, text = run(machine, zeros_inside, cgroup, 4096, env=growth)

    assert error == "ResourceExhaustedError", text


def test_who_may_limit_what(machine: Machine, dmem: bool, cgroup: Path, tmp_path: Path) -> None:
    assert run(machine, set_limits, cgroup, 0, GIB, 0, NOBODY) == NO_PERMISSION
    assert run(machine, set_limits, cgroup, 2 * GIB, GIB) == INVALID
    assert run(machine, set_limits, tmp_path, 0, GIB) == NOT_FOUND
    assert run(machine, set_limits, cgroup / "none", 0, GIB) == NOT_FOUND

    # a cgroup that no process on a GPU ever was in
    assert run(machine, set_limits, cgroup, 0, GIB) == (None if dmem else NOT_SUPPORTED)
    assert run(machine, set_limits, cgroup, 0, GIB) is None
    assert run(machine, get_limits, cgroup) == (0, GIB, 0)


def test_an_older_driver_limits_nothing(machine: Machine, cgroup: Path) -> None:
    machine.set_driver("610.43.02")

    assert run(machine, set_limits, cgroup, 0, GIB) == NO_FUNCTION
    assert limits(machine, cgroup) == NO_FUNCTION


def test_mig_has_no_limits(cgroup: Path) -> None:
    with Machine.create("40GiB:mig=2") as machine:
        machine.set_driver("615.71.09")
        assert run(machine, set_limits_of_instance, cgroup) == INVALID


def set_limits_of_instance(cgroup: Path) -> int:
    """Limit a cgroup on a MIG instance; the code of the error."""
    pynvml.nvmlInit()
    part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(pynvml.nvmlDeviceGetHandleByIndex(0), 0)
    with pytest.raises(pynvml.NVMLError) as raised:
        pynvml.nvmlDeviceSetMemoryLimits_v1(part, pynvml.c_nvmlSetMemoryLimits_v1_t(bytes(cgroup), 0, GIB))
    return int(raised.value.value)
