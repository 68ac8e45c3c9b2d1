"""GPU state goes to a file on disk and comes back; whatever goes wrong with disk, file or worker, nothing is lost."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.magic.shell import cells
from tests.parking.notebooks import seen
from tests.processes import program, run
from tests.simgpu.checkpoint_on_machine import hold, intact, resident
from tests.sizes import CONTEXT, GIB, MIB
from tests.waiting import until
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.leases.lease_file import LeaseTable
from tfgpu_magic.parking import checks, disk, facts
from tfgpu_magic.parking.disk import DiskPlace
from tfgpu_magic.parking.driver import COMPLETE
from tfgpu_magic.parking.gpu_state import GpuState, Timeouts
from tfgpu_magic.parking.inside.introspection import keep_nvml, of_process
from tfgpu_magic.parking.messages import ParkOutcome
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.parking.transfers import Park, Unpark
from tfgpu_magic.simgpu import Machine

SIZE = 256 * MIB


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with seen("1x8GiB", tmp_path) as machine:
        machine.set_driver("615.71.09")
        yield machine


class Here:
    """This process, which holds memory of the GPU, and a directory to park in."""

    def __init__(self, directory: str, size: int = SIZE) -> None:
        keep_nvml()
        hold(size)
        disk.LOCAL += ("tmpfs",)  # wherever the tests run
        checks.ARCHITECTURES = (os.uname().machine,)
        facts.disk_place = lambda: DiskPlace(directory, GIB * 8)
        self.at: dict[Phase, Callable[[], object]] = {}
        self.state = GpuState(os.getpid(), self._changed)
        self.held = Machine.attach(os.environ["TFGPU_SIMGPU"]).held

    def park(self) -> list[Any]:
        return _told(Park(self.state, of_process(), to_disk=True).park())

    def unpark(self) -> list[Any]:
        return _told(Unpark(self.state, LeaseTable()).unpark())

    def _changed(self, known: ParkedProcess | None) -> None:
        if known is not None and known.phase in self.at:
            self.at.pop(known.phase)()

    def kill_worker(self) -> None:
        """Kill the worker once it is in the call that is next."""

        def kill() -> None:
            worker = self.state._worker
            assert worker is not None
            until(lambda: not worker.usable, every=0.01)
            os.kill(worker.pid, signal.SIGKILL)

        threading.Thread(target=kill).start()


def _told(outcome: ParkOutcome) -> list[Any]:
    return [(one.reason.name, *one.values) for one in outcome.refusals]


def _there_and_back(directory: str, size: int) -> list[Any]:
    """Return what each way ends in, what was seen meanwhile, and whether all is the same."""
    here = Here(directory, size)
    before = resident(os.getpid())
    gone = here.park()
    file, grown = here.state.file, resident(os.getpid()) - before
    assert file is not None
    about = os.fstat(file)
    found = sorted(one.name for one in Path(directory).iterdir())
    seen = (here.held(pid=os.getpid()), about.st_size, oct(about.st_mode & 0o777), about.st_nlink, found)
    back = here.unpark()
    return [gone, seen, grown < GIB, back, here.state.file, here.held(pid=os.getpid()), intact()]


@pytest.mark.parametrize("size", [SIZE, 4 * GIB])
def test_it_goes_to_a_file_that_nobody_finds_and_nothing_is_kept(machine: Machine, tmp_path: Path, size: int) -> None:
    machine.set_checkpoints(host_memory=True)  # in host memory it would be as much more

    assert run(machine, _there_and_back, str(tmp_path), size, fresh=True) == [
        [], (0, size, "0o600", 0, ["board"]), True, [], None, size + CONTEXT, True
    ]  # fmt: skip


def _parked(directory: str) -> list[Any]:
    here = Here(directory)
    return here.park()


def test_whatever_ends_the_process_the_file_is_gone(machine: Machine, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    with program(machine, _parked, str(place), fresh=True) as parked:
        assert parked.answer == []
        os.kill(parked.pid, signal.SIGKILL)
    assert list(place.iterdir()) == []
    until(lambda: machine.held() == 0)


def _left_open(directory: str) -> list[Any]:
    """Return whether a fork and one whose state is lost have the file."""
    here = Here(directory)
    here.park()
    file = here.state.file
    child = os.fork()
    if not child:
        os._exit(Path(f"/proc/self/fd/{file}").exists())
    kept = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    here.state.move(Phase.FAILED)
    return [bool(kept), Path(f"/proc/self/fd/{file}").exists()]


def test_neither_a_fork_nor_a_state_that_is_lost_keeps_the_file(machine: Machine, tmp_path: Path) -> None:
    assert run(machine, _left_open, str(tmp_path), fresh=True) == [False, False]


def _full(directory: str) -> list[Any]:
    here = Here(directory)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, most[1]))
    refused = here.park()
    resource.setrlimit(resource.RLIMIT_FSIZE, most)
    unlocked = (here.state.known, here.state.file, intact())
    return [refused, unlocked, here.park(), here.unpark(), intact()]


def test_a_disk_that_is_full_is_said_and_nothing_has_changed(machine: Machine, tmp_path: Path) -> None:
    refused, unlocked, parked, back, same = run(machine, _full, str(tmp_path), fresh=True)

    assert refused == [("disk-failed", "File too large")]
    assert unlocked == (None, None, True)
    assert (parked, back, same) == ([], [], True)


def _driver_fails(directory: str, out: str, back: str) -> list[Any]:
    here = Here(directory)
    machine = Machine.attach(os.environ["TFGPU_SIMGPU"])
    here.state.timeouts = Timeouts(copy=1.0)
    machine.fault(out, 700)
    refused = here.park()
    machine.clear_faults()
    unlocked = here.state.known is None and (here.state.file, intact())
    parked = here.park()
    machine.fault(back, 700)
    kept = here.unpark()
    machine.clear_faults()
    again = here.unpark()
    return [refused, unlocked, parked, kept, again, not again and intact()]


@pytest.mark.parametrize(("out", "back"), [("cuMemcpyDtoH", "cuMemcpyHtoD"), (COMPLETE, COMPLETE)])
def test_what_fails_midway_is_taken_back_and_tried_again(machine: Machine, tmp_path: Path, out: str, back: str) -> None:
    refused, unlocked, parked, kept, again, same = run(machine, _driver_fails, str(tmp_path), out, back, fresh=True)

    assert [one[0] for one in refused] == ["declined"]
    assert unlocked == (None, True)
    assert kept[0][0] == "declined"
    assert (parked, again, same) == ([], [], True)


def _directory_gone(directory: str) -> list[Any]:
    here = Here(directory)
    here.at[Phase.LOCKING] = Path(directory).rmdir
    midway = here.park()
    return [midway, here.park(), here.state.known, intact()]


def test_a_directory_that_goes_is_said_before_the_lock_and_after_it(machine: Machine, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    midway, later, known, same = run(machine, _directory_gone, str(place), fresh=True)

    assert midway == later == [("disk-unusable", str(place), "No such file or directory")]
    assert (known, same) == (None, True)


def _worker_killed(directory: str) -> list[Any]:
    here = Here(directory)
    here.at[Phase.CHECKPOINTING] = here.kill_worker
    out = here.park()
    found: list[Any] = [bool(out), None if here.state.known is None else here.state.known.parked, intact()]
    found += [here.park()]
    here.at[Phase.RESTORING] = here.kill_worker
    back = here.unpark()
    found += [back, here.state.known.phase.value if here.state.known else "", here.held(pid=os.getpid())]
    return [*found, here.unpark(), intact(), here.state.file]


def test_a_worker_that_is_killed_midway_loses_nothing(machine: Machine, tmp_path: Path) -> None:
    machine.set_checkpoints(out=0.1, back=0.1)
    *out, parked, again, phase, held, back, same, file = run(machine, _worker_killed, str(tmp_path), fresh=True)

    assert out == [True, False, True]
    assert parked == []
    assert (again, phase, held) == ([], "back", SIZE + CONTEXT)  # by another worker
    assert (back, same, file) == ([], True, None)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (lambda one: one.set_driver("610.43.02"), [("old-for-disk", "610.43.02", "615")]),
        (lambda one: one.set_checkpoints(ancestors_only=True), [("declined", "cuCheckpointProcessCheckpoint", 304)]),
    ],
)
def test_a_driver_that_cannot_or_may_not_do_it_is_said(
    machine: Machine, tmp_path: Path, change: Callable[[Machine], object], refused: list[Any]
) -> None:
    change(machine)

    with program(machine, _parked, str(tmp_path), fresh=True) as done:
        assert done.answer == refused
        assert machine.held(pid=done.pid) == SIZE + CONTEXT


def test_a_place_is_read_as_a_size_and_a_directory() -> None:
    assert DiskPlace.read("500GiB in /scratch/a b") == DiskPlace("/scratch/a b", 500 * GIB)
    assert DiskPlace.read("") is DiskPlace.read("500GiB") is None
    with pytest.raises(PolicyError):
        DiskPlace.read("much in /scratch")


def test_a_file_system_that_is_no_disk_here_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    line = "36 35 98:0 / {} rw,noatime shared:1 - {} source rw\n"
    mounts.write_text(line.format("/", "ext4") + line.format(str(tmp_path).replace("/", "\\057"), "nfs4"))
    monkeypatch.setattr(disk, "_MOUNTS", mounts)

    with pytest.raises(OSError, match="its file system is nfs4"):
        DiskPlace(str(tmp_path), GIB).left()
    assert DiskPlace(str(tmp_path.parent), GIB).left() >= 0


def _session(directory: str) -> list[str]:
    """Return what is said below a cell that parks to disk, of a row meanwhile, and below the next cell."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    settings = {"parking": "ask", "parking_disk": f"8GiB in {directory}"}
    InteractiveShell.instance(config=Config({"TfGpuMagics": settings}))
    disk.LOCAL += ("tmpfs",)
    checks.ARCHITECTURES = (os.uname().machine,)
    cells("%load_ext tfgpu_magic")
    cells(f"from tests.simgpu.checkpoint_on_machine import hold, intact; hold({SIZE})")
    return [cells("%tf_gpu park --to disk")[-1].text, cells("print(intact())")[-1].text]


def test_a_line_parks_to_disk_and_the_next_cell_has_all_again(machine: Machine, tmp_path: Path) -> None:
    parked, back = run(machine, _session, str(tmp_path), fresh=True)

    assert "of GPU memory are on disk now" in parked
    assert back.endswith("True\n")
    assert machine.held() == 0
