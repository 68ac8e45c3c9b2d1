"""What the reader makes of a driver's oddities; the simulated machine's part is in test_look.py."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.sizes import GIB
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.machine.driver import limits, nvml
from tfgpu_magic.machine.driver.nvml import NvmlReader
from tfgpu_magic.machine.driver.readings import complete

from .driver import COMPUTE, GRAPHICS, LIMITS, MPS, NEWER, Device, Driver

NOT_AVAILABLE = 2**64 - 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(Device(used=4 * GIB, reserved=GIB)).install(monkeypatch)


def test_each_list_and_each_memory_costs_one_call_and_what_does_not_change_is_asked_once(driver: Driver) -> None:
    driver.devices[0].lists = {COMPUTE: [(10, GIB), (11, GIB)], GRAPHICS: [(12, GIB)]}
    with closing(NvmlReader()) as reader:
        for _ in range(5):
            reader.read()

    for name in (
        "nvmlInitWithFlags",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlShutdown",
    ):
        assert driver.calls[name] == 1
    for listing in (COMPUTE, GRAPHICS, MPS):
        assert driver.calls[listing + "_v3"] == 5
    assert driver.calls["nvmlDeviceGetMemoryInfo_v2"] == 10  # before the lists, and after them


def test_what_moves_while_it_is_read_is_nobody_elses(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    device, listed = driver.devices[0], NvmlReader._list
    device.lists = {COMPUTE: [(10, 4 * GIB)]}

    def moving(self: NvmlReader, function: str, handle: object) -> object:
        if device.used < 6 * GIB:
            device.used += GIB
            device.lists = {COMPUTE: [(10, device.used)]}
        return listed(self, function, handle)

    monkeypatch.setattr(NvmlReader, "_list", moving)
    found = NvmlReader().read()

    assert [row.held for row in found.processes] == [found.gpus[0].used] == [6 * GIB]


def test_limits_are_asked_for_once_a_recount_where_there_are_none(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "cgroups", lambda: pytest.fail("an older driver has no such call"))
    with closing(NvmlReader()) as reader:
        reader.read()
        monkeypatch.setattr(limits, "cgroups", lambda: ["/sys/fs/cgroup/own", "/sys/fs/cgroup"])
        driver.missing.remove(LIMITS)
        reader.close()
        none = [reader.read().gpus[0] for _ in range(5)]
        assert driver.calls[LIMITS] == 2
        driver.devices[0].hard = 8 * GIB
        assert reader.read().gpus[0].limit is None  # until the next recount
        reader.close()
        held = reader.read().gpus[0]

    assert none[0] == none[-1] == none[0]._replace(limit=None, free=11 * GIB)
    assert held == none[0]._replace(limit=8 * GIB, free=8 * GIB - GIB - limits.DRIVERS_PART)


def test_a_limit_beyond_the_gpus_memory_is_none(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "cgroups", lambda: ["/sys/fs/cgroup/own"])
    driver.missing.remove(LIMITS)
    driver.devices[0].hard = 60 * GIB
    with closing(NvmlReader()) as reader:
        gpu = reader.read().gpus[0]

    assert (gpu.limit, gpu.free, gpu.capacity) == (None, 11 * GIB, gpu.total)


def test_dear_lists_are_asked_only_when_wanted(driver: Driver) -> None:
    driver.devices[0].lists = {COMPUTE: [(10, GIB)], GRAPHICS: [(12, GIB)]}

    with closing(NvmlReader()) as reader:
        none = reader.read(processes=False)
        compute = reader.read(graphics=False)

    assert (none.processes, none.gpus[0].listed) == ((), False)
    assert [process.pid for process in compute.processes] == [10]
    assert compute.gpus[0].listed
    assert driver.calls[GRAPHICS + "_v3"] == 0


def test_facts_are_read(driver: Driver) -> None:
    gpu = NvmlReader().read().gpus[0]

    assert (gpu.label, gpu.uuid, gpu.name) == ("0", "GPU-0", "NVIDIA Test")
    assert (gpu.capability, gpu.multiprocessors) == ((8, 0), 108)
    assert (gpu.total, gpu.used, gpu.free, gpu.reserved) == (16 * GIB, 4 * GIB, 11 * GIB, GIB)


def without(*versions: str) -> set[str]:
    return {listing + version for listing in (COMPUTE, GRAPHICS, MPS) for version in versions}


Rows = dict[str, list[tuple[int, ...]]]
TWO = {COMPUTE: [(10, GIB), (11, 2 * GIB)]}, [(10, "C", GIB), (11, "C", 2 * GIB)]


@pytest.mark.parametrize(
    ("missing", "lists", "rows"),
    [
        ((), {COMPUTE: [(pid, 1) for pid in range(1, 500)]}, [(pid, "C", 1) for pid in range(1, 500)]),  # than fit
        # A pid in both lists is one row with the larger figure.
        (
            (), {COMPUTE: [(10, 2 * GIB)], GRAPHICS: [(10, 3 * GIB)], MPS: [(11, GIB)]},
            [(10, "C+G", 3 * GIB), (11, "M+C", GIB)],
        ),
        ((), {COMPUTE: [(10, NOT_AVAILABLE), (11, 0)]}, [(10, "C", None), (11, "C", None)]),
        ((), {COMPUTE: [(2**22, GIB)]}, [(2**22, "C", GIB)]),  # of a host with more pids than here
        (without("_v3"), *TWO),
        (without("_v3", "_v2"), *TWO),
    ],
    ids=["long", "both", "not available", "a large pid", "v2", "v1"],
)  # fmt: skip
def test_lists_of_all_versions_are_read_whole_and_as_one(
    driver: Driver, missing: set[str], lists: Rows, rows: list[tuple[int, str, int | None]]
) -> None:
    driver.devices[0].lists = lists
    driver.missing.update(missing)
    snapshot = NvmlReader().read()

    assert [(process.pid, process.kind, process.held) for process in snapshot.processes] == rows
    assert snapshot.notes == ()


@pytest.mark.parametrize(("announced", "read"), [(True, [10, 11, 12]), (False, [10])])
def test_the_longer_rows_of_535_are_read_right_or_dropped_and_said(
    driver: Driver, announced: bool, read: list[int]
) -> None:
    driver.rows["_v3"] = nvml.ROW_OF_535
    if announced:
        driver.extra.add("nvmlDeviceGetConfComputeMemSizeInfo")
    driver.devices[0].lists = {COMPUTE: [(10, GIB), (11, 2 * GIB), (12, 3 * GIB)]}
    snapshot = NvmlReader().read()

    assert [(process.pid, process.held) for process in snapshot.processes] == [(pid, (pid - 9) * GIB) for pid in read]
    assert ["invalid on GPU 0" in note for note in snapshot.notes] == [True] * (not announced)


@pytest.mark.parametrize("row", [(0, GIB), (2**31, GIB), (2**22 + 1, GIB), (10, 17 * GIB)])
def test_rows_that_cannot_be_are_dropped_and_said(driver: Driver, row: tuple[int, int]) -> None:
    driver.devices[0].lists = {COMPUTE: [row, (11, GIB)]}
    snapshot = NvmlReader().read()

    assert [process.pid for process in snapshot.processes] == [11]
    assert "invalid on GPU 0" in snapshot.notes[0]


def test_memory_v1_counts_the_reserve_as_used_and_that_is_said(driver: Driver) -> None:
    driver.missing.add("nvmlDeviceGetMemoryInfo_v2")

    snapshot = NvmlReader().read()

    assert (snapshot.gpus[0].used, snapshot.gpus[0].reserved) == (5 * GIB, None)
    assert "reserves for itself as used" in snapshot.notes[0]


@pytest.mark.parametrize("how", ["not supported", "zeros"])
def test_unified_memory_is_the_machines_and_used_is_what_processes_hold(driver: Driver, how: str) -> None:
    gpu = driver.devices[0]
    gpu.lists = {COMPUTE: [(10, GIB), (11, GIB)]}
    if how == "zeros":
        gpu.total = gpu.used = gpu.reserved = 0
    else:
        gpu.codes = dict.fromkeys(("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"), 3)

    read = NvmlReader().read().gpus[0]

    ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (read.unified, read.total, read.used, read.error) == (True, ram, 2 * GIB, None)
    assert read.free == pytest.approx(psutil.virtual_memory().available, rel=0.3)  # programs use it too


@pytest.mark.parametrize(
    ("calls", "code", "used", "error"),
    [
        (
            ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", COMPUTE + "_v3"), 3, None,
            "the driver does not support it on this GPU",
        ),
        ((COMPUTE + "_v3",), 4, 4 * GIB, "no list of processes: the driver gives no permission to read it"),
    ],
)  # fmt: skip
def test_no_list_is_said_and_leaves_the_memory_that_is_told(
    driver: Driver, calls: tuple[str, ...], code: int, used: int | None, error: str
) -> None:
    driver.devices[0].codes = dict.fromkeys(calls, code)

    gpu = NvmlReader().read().gpus[0]

    assert (gpu.unified, gpu.used, gpu.listed, gpu.error) == (False, used, False, error)


@pytest.mark.parametrize(("code", "words"), [(15, "lost"), (16, "reset"), (999, "unknown error"), (77, "error 77")])
def test_a_failing_gpu_says_why_and_others_live_on(monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    driver = Driver(Device("GPU-0", used=GIB), Device("GPU-1", used=2 * GIB)).install(monkeypatch)
    with closing(NvmlReader()) as reader:
        reader.read()
        driver.devices[0].codes = {"nvmlDeviceGetMemoryInfo_v2": code}
        failed = reader.read()
        driver.devices[0].codes = {"nvmlDeviceGetHandleByIndex_v2": code}
        unreachable = reader.read()
        driver.devices[0].codes = {}
        back = reader.read()

    for snapshot in (failed, unreachable):
        assert words in (snapshot.gpus[0].error or "")
        assert (snapshot.gpus[0].name, snapshot.gpus[0].used) == ("NVIDIA Test", None)
        assert snapshot.gpus[1].used == 2 * GIB
    assert back.gpus[0].error is None


def test_mig_instances_follow_their_parent_whose_memory_may_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    instances = [Device("MIG-a", total=5 * GIB, used=GIB, instance=3, lists={COMPUTE: [(10, GIB)]})]
    instances.append(Device("MIG-b", total=5 * GIB, instance=5))
    parent = Device("GPU-0", mig=instances, codes={"nvmlDeviceGetMemoryInfo_v2": 4})
    driver = Driver(parent, Device("GPU-1")).install(monkeypatch)

    snapshot = NvmlReader().read()

    assert [(gpu.label, gpu.uuid, gpu.mig) for gpu in snapshot.gpus] == [
        ("0", "GPU-0", True),
        ("0.3", "MIG-a", False),
        ("0.5", "MIG-b", False),
        ("1", "GPU-1", False),
    ]
    assert (snapshot.gpus[0].used, snapshot.gpus[0].error) == (None, None)
    assert [(process.gpu, process.pid) for process in snapshot.processes] == [("0.3", 10)]
    assert driver.calls[COMPUTE + "_v3"] == 3  # the parent's list would show the same processes again


def test_compute_instances_of_one_gpu_instance_keep_labels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(Device(mig=[Device("MIG-a", instance=1), Device("MIG-b", instance=1)])).install(monkeypatch)

    assert [gpu.label for gpu in NvmlReader().read().gpus] == ["0", "0.0", "0.1"]


def test_gpus_that_come_go_or_change_places_are_known_by_uuid(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfgpu_magic.machine.driver.nvml.RECOUNT_EVERY", 0.0)
    with closing(NvmlReader()) as reader:
        reader.read()
        driver.devices.insert(0, Device("GPU-new", name=b"New"))
        gpus = reader.read().gpus

    assert [(gpu.index, gpu.uuid, gpu.name) for gpu in gpus] == [(0, "GPU-new", "New"), (1, "GPU-0", "NVIDIA Test")]
    assert driver.calls["nvmlDeviceGetName"] == 2


@pytest.mark.parametrize(
    ("failing", "words", "absent"),
    [
        (9, "not loaded", True),
        (12, "libnvidia-ml.so.1 could not be opened", True),
        (18, "changed under the running system", False),
        (999, "error 999", False),
    ],
)
def test_a_driver_that_does_not_start_is_said_and_tried_again(
    driver: Driver, failing: int, words: str, absent: bool
) -> None:
    driver.start = failing
    with closing(NvmlReader()) as reader:
        snapshot = reader.read()
        driver.start = 0
        later = reader.read()

    assert words in (snapshot.error or "")
    assert (snapshot.absent, snapshot.gpus) == (absent, ())
    assert (later.error, later.driver, len(later.gpus)) == (None, "550.1", 1)


def test_a_driver_without_gpus_is_absent(driver: Driver) -> None:
    driver.devices = []

    snapshot = NvmlReader().read()

    assert snapshot.absent
    assert "lists no GPU" in (snapshot.error or "")


def test_a_driver_without_the_old_function_tells_the_temperature_by_the_new_one(used: Driver) -> None:
    used.missing.symmetric_difference_update({"nvmlDeviceGetTemperature", NEWER})

    assert NvmlReader().read().gpus[0].sensors["temperature"] == 54


READS = {
    "nvmlSystemGetDriverVersion": set[str](),
    "nvmlErrorString": set[str](),
    "nvmlDeviceGetMigMode": set[str](),
    "nvmlDeviceGetComputeMode": set[str](),
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetCudaComputeCapability": {"capability", "multiprocessors"},
    "nvmlDeviceGetNumGpuCores": {"multiprocessors"},
    "nvmlDeviceGetUtilizationRates": {"utilisation"},
    "nvmlDeviceGetTemperature": {"temperature"},
    "nvmlDeviceGetPowerUsage": {"power"},
    GRAPHICS + "_v3": set[str](),
    MPS + "_v3": set[str](),
}
"""What fails with a function: the fields or sensors of a GPU, of which there is no error then."""


@pytest.mark.parametrize("code", [None, 3, 4, 7, 999])
@pytest.mark.parametrize("function", READS)
def test_a_function_that_fails_or_is_not_there_costs_its_own_figure(
    used: Driver, function: str, code: int | None
) -> None:
    whole = NvmlReader().read()
    if code is None:
        used.missing.update((function, function.removesuffix("_v3") + "_v2", function.removesuffix("_v3")))
    used.devices[0].codes = {function: code or 0}
    read = NvmlReader().read()

    gpu, lost = whole.gpus[0], READS[function]
    fields: dict[str, Any] = dict.fromkeys(lost - gpu.sensors.keys())
    sensors = {name: None if name in lost else figure for name, figure in gpu.sensors.items()}
    assert read.gpus == (gpu._replace(**fields, sensors=sensors),)
    assert [(row.pid, row.kind, row.held) for row in read.processes] == [(pid, "C", GIB) for pid in (10, 11, 12)]


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (None, "import of pynvml halted"),
        (SimpleNamespace(__file__="/site/pynvml/__init__.py", nvmlInit=print), "/site/pynvml/__init__.py is of"),
        (ModuleType("pynvml"), "<module 'pynvml'> is of"),  # of an empty folder of that name
    ],
)
def test_without_nvidia_ml_py_or_with_another_the_line_to_install_is_said(
    driver: Driver, found: object, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = NvmlReader()
    monkeypatch.setattr(nvml, "pynvml", None)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "pynvml", found)
        snapshot = reader.read()

    assert named in (snapshot.error or "")
    assert "pip install --force-reinstall 'nvidia-ml-py>=12.535'" in (snapshot.error or "")
    assert (snapshot.absent, driver.calls) == (False, {})
    assert reader.read().gpus  # it is installed


def test_a_name_that_is_no_utf8_is_shown_as_well_as_it_can_be(driver: Driver) -> None:
    driver.devices[0].name = b"Te\xffst"

    assert NvmlReader().read().gpus[0].name == "Te\ufffdst"


# --- use: percentages, samples of processes, sensors ---

PROCESSES = "nvmlDeviceGetProcessUtilization"
POWER = "nvmlDeviceGetPowerUsage"


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Driver:
    lists: dict[str, list[tuple[int, ...]]] = {COMPUTE: [(10, GIB), (11, GIB), (12, GIB)]}
    return Driver(Device(utilisation=40, samples=[], celsius=54, milliwatts=61_500, lists=lists)).install(monkeypatch)


def percentages(reader: NvmlReader) -> dict[int, int | None]:
    return {process.pid: process.utilisation for process in reader.read(graphics=False).processes}


def test_a_process_with_a_new_sample_uses_the_gpu_and_the_others_do_not(used: Driver) -> None:
    device = used.devices[0]
    at = int(1e6 * time.time()) - 1000
    device.samples = [(10, at, 30, 5, 0, 0), (10, at + 2, 20, 5, 0, 0), (11, at + 1, 0, 0, 3, 0)]
    with closing(NvmlReader()) as reader:
        first = percentages(reader)
        device.samples.append((12, at + 3, 50, 0, 0, 0))
        second = percentages(reader)
        third = percentages(reader)

    assert first == {10: 20, 11: 1, 12: 0}  # the newest of two; what uses the codecs alone uses the GPU
    assert second == {10: 0, 11: 0, 12: 50}
    assert third == {10: 0, 11: 0, 12: 0}
    assert used.calls[PROCESSES] == 3


def test_a_driver_that_counts_from_its_own_start_is_understood(used: Driver) -> None:
    device = used.devices[0]
    device.samples = [(10, 1000, 30, 5, 0, 0)]
    with closing(NvmlReader()) as reader:
        first = percentages(reader)
        device.samples.append((11, 3000, 50, 0, 0, 0))
        second = percentages(reader)

    assert (first, second) == ({10: 30, 11: 0, 12: 0}, {10: 0, 11: 50, 12: 0})


def test_a_driver_that_does_not_tell_leaves_it_unknown(used: Driver) -> None:
    used.devices[0].samples = None
    used.devices[0].utilisation = None

    snapshot = NvmlReader().read()

    assert snapshot.gpus[0].utilisation is None
    assert [process.utilisation for process in snapshot.processes] == [None] * 3


@pytest.mark.parametrize("sample", [(0, 1000, 50, 0, 0, 0), (10, 1000, 2**31, 0, 0, 0), (10, 1000, 40, 101, 0, 0)])
def test_samples_that_are_old_or_cannot_be_are_left_out(
    used: Driver, sample: tuple[int, int, int, int, int, int]
) -> None:
    now = int(1e6 * time.time())
    before_the_first_reading = (12, now - 60 * 10**6, 30, 5, 0, 0)
    used.devices[0].samples = [sample, before_the_first_reading, (11, now - 10**6, 30, 5, 0, 0)]

    assert percentages(NvmlReader()) == {10: 0, 11: 30, 12: 0}


def test_a_sample_of_the_future_hides_no_later_one(used: Driver) -> None:
    now = int(1e6 * time.time())
    used.devices[0].samples = [(10, now + 10**12, 50, 0, 0, 0)]
    with closing(NvmlReader()) as reader:
        percentages(reader)
        used.devices[0].samples = [(11, now + 10**6, 50, 0, 0, 0)]

        assert percentages(reader)[11] == 50


def test_a_clock_that_is_set_back_leaves_what_is_in_use_in_use(used: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's samples bear the clock's time, which an hour ago was an hour ahead."""
    device, now = used.devices[0], time.time()
    seen = []
    with closing(NvmlReader()) as reader:
        for clock in (now + 3600, now, now + 1, now + 2):
            monkeypatch.setattr(time, "time", lambda clock=clock: clock)
            device.samples = [(10, int(1e6 * (clock - past)), 90, 5, 0, 0) for past in (0.2, 0.1)]
            seen.append(percentages(reader))
        idle = percentages(reader)

    assert seen == [{10: 90, 11: 0, 12: 0}] * 4
    assert idle == {10: 0, 11: 0, 12: 0}


def test_more_samples_than_there_is_room_for_are_read_whole(used: Driver) -> None:
    device = used.devices[0]
    device.lists = {COMPUTE: [(pid, GIB // 100) for pid in range(1, 300)]}
    device.samples = [(pid, 1000, 7, 0, 0, 0) for pid in range(1, 300)]

    assert set(percentages(NvmlReader()).values()) == {7}


def test_nobody_is_sampled_where_nobody_is_listed(used: Driver) -> None:
    used.devices[0].lists = {}
    NvmlReader().read()

    assert used.calls[PROCESSES] == 0


TOLD = {"utilisation": 40, "temperature": 54, "power": 61.5}


def test_sensors_are_read_with_the_graphics_processes_and_kept_in_between(used: Driver) -> None:
    with closing(NvmlReader()) as reader:
        whole = reader.read()
        lists = reader.read(graphics=False)
        memory = reader.read(processes=False)

    assert used.calls[POWER] == 1
    assert whole.gpus[0].sensors == TOLD
    second = complete(lists, whole, processes=True, graphics=False)
    third = complete(memory, second, processes=False, graphics=False)
    assert [one.gpus[0].sensors for one in (second, third)] == [TOLD] * 2


def test_the_use_of_a_gpu_is_of_its_own_reading(used: Driver) -> None:
    with closing(NvmlReader()) as reader:
        whole = reader.read()
        used.devices[0].utilisation = 90
        memory = complete(reader.read(processes=False), whole, processes=False, graphics=False)

    assert memory.gpus[0].utilisation == 90
    assert [row.utilisation for row in memory.processes] == [0, 0, 0]


def test_sensors_of_a_gpu_that_fails_are_gone(used: Driver) -> None:
    with closing(NvmlReader()) as reader:
        whole = reader.read()
        used.devices[0].codes = {"nvmlDeviceGetMemoryInfo_v2": 15}
        failed = complete(reader.read(processes=False), whole, processes=False, graphics=False)

    assert failed.gpus[0].sensors == {}


# --- a reading without lists has those of the one before, as far as they can still be true ---

GPUS = (Gpu(index=0, uuid="GPU-a", used=GIB), Gpu(index=1, uuid="GPU-b", used=GIB))
ROWS = (
    Process(gpu="0", pid=1, kind="C", held=GIB),
    Process(gpu="0", pid=2, kind="C+G", held=GIB),
    Process(gpu="0", pid=3, kind="G", held=GIB),
    Process(gpu="1", pid=1, kind="C", held=GIB),
)
BEFORE = Snapshot(time=1.0, gpus=GPUS, processes=ROWS, notes=("rows were dropped",))
MEMORY = Snapshot(time=2.0, gpus=tuple(gpu._replace(used=2 * GIB, listed=False) for gpu in GPUS))


def without_lists(fresh: Snapshot, before: Snapshot | None = BEFORE) -> Snapshot:
    return complete(fresh, before, processes=False, graphics=False)


def test_memory_is_fresh_and_rows_are_those_before() -> None:
    seen = without_lists(MEMORY)

    assert [(gpu.used, gpu.listed) for gpu in seen.gpus] == [(2 * GIB, True)] * 2
    assert (seen.time, seen.processes, seen.notes) == (2.0, ROWS, BEFORE.notes)


@pytest.mark.parametrize("change", [{"error": "the GPU is lost", "lost": True}, {"uuid": "GPU-new"}])
def test_a_gpu_that_fails_or_is_another_has_no_rows(change: dict[str, object]) -> None:
    fresh = MEMORY._replace(gpus=(MEMORY.gpus[0]._replace(**change), MEMORY.gpus[1]))  # type: ignore[arg-type]

    assert without_lists(fresh).processes == ROWS[3:]
    assert not without_lists(fresh).gpus[0].listed


def test_a_list_that_was_refused_stays_refused() -> None:
    refused = GPUS[0]._replace(
        listed=False, refused=True, error="no list of processes: the driver gives no permission to read it"
    )
    seen = without_lists(MEMORY, BEFORE._replace(gpus=(refused, GPUS[1])))

    assert (seen.gpus[0].error, seen.gpus[0].listed) == (refused.error, False)


def test_unified_memory_is_used_as_the_lists_said() -> None:
    before = BEFORE._replace(gpus=(GPUS[0]._replace(unified=True),))
    fresh = MEMORY._replace(gpus=(GPUS[0]._replace(used=None, unified=True),))

    assert without_lists(fresh, before).gpus[0].used == GIB


def test_without_graphics_lists_those_who_draw_are_as_before() -> None:
    computing = (
        Process(gpu="0", pid=1, kind="C", held=2 * GIB),
        Process(gpu="0", pid=2, kind="C", held=2 * GIB),
        Process(gpu="1", pid=4, kind="C", held=2 * GIB),
    )
    seen = complete(BEFORE._replace(processes=computing), BEFORE, processes=True, graphics=False)

    assert [(row.gpu, row.pid, row.kind, row.held) for row in seen.processes] == [
        ("0", 1, "C", 2 * GIB),
        ("0", 2, "C+G", 2 * GIB),
        ("0", 3, "G", GIB),
        ("1", 4, "C", 2 * GIB),
    ]


@pytest.mark.parametrize("fresh", [MEMORY._replace(gpus=(), error="no driver"), MEMORY])
def test_no_driver_and_no_reading_before_carry_nothing(fresh: Snapshot) -> None:
    assert without_lists(fresh, BEFORE if fresh.error else None) is fresh
