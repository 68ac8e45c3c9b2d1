"""What one user does to another and to the services, really and with that user's rights, and what becomes of it.

Every attack shows first that it was made. While it lasts or after it, Ann's own figures are true.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests.cgroups import cgroup2
from tests.command.shell import tfgpu
from tests.containers import container
from tests.jupyter import Notebook, Server, configure, serving
from tests.lab.attacks import ANN, CONTAINERS, EVE, HELD, TOLD_APART, TRIED, Lab, attack, laboratory
from tests.lab.users import acting, as_user
from tests.machine.boards import end_collectors
from tests.processes import among_own_pids, choose_pid
from tests.root.test_limits import FILE, limited, watching
from tests.server import streaming
from tests.server.acting import post, row_of
from tests.sizes import GIB, MIB
from tests.waiting import until
from tfgpu_magic.errors import MonitorError, SimulatorError
from tfgpu_magic.ground.report import Report
from tfgpu_magic.lab.counters import HOURS
from tfgpu_magic.machine.board import directory, machine_board
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.machine_board import MachineBoard
from tfgpu_magic.machine.board.report_files import PREFIX, ReportFiles
from tfgpu_magic.machine.board.snapshot_file import SNAPSHOT
from tfgpu_magic.machine.owners.cgroups import cgroup_name
from tfgpu_magic.machine.owners.pids import start_time
from tfgpu_magic.simgpu import Machine, build

ROOT = Path(__file__).parents[2]
EVIL = '</td><script>alert(1)</script>"} 1 tfgpu_magic_up 0'
"""What ends a cell of a table, a label, and a line of a metric."""

SERVER = """
import pathlib
from tfgpu_magic import policy
policy.FILE = pathlib.Path({file!r})
"""
"""The configuration of a server with an administrator's file."""


@pytest.fixture(scope="module")
def made() -> Iterator[Lab]:
    with laboratory() as lab:
        yield lab


@pytest.fixture
def lab(made: Lab) -> Iterator[Lab]:
    """Give the machine, where all that Ann sees is true before an attack and after it."""
    until(made.true)
    yield made
    until(made.true)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Machine, Server, Notebook]]:
    """Give a server of root's, in a home that all users can enter, and a notebook there that holds memory."""
    with tempfile.TemporaryDirectory() as folder, Machine.create("1x8GiB", shared=True) as machine:
        home, file = Path(folder), Path(folder, "tfgpu_magic.toml")
        home.chmod(0o755)
        file.write_text('[idle]\nnotify = "2h"\nstop = "24h"\n')
        configure(home)
        home.joinpath(".jupyter").mkdir()
        (home / ".jupyter/jupyter_server_config.py").write_text(SERVER.format(file=str(file)))
        environment = {"TFGPU_MAGIC_DIR": f"{folder}/board", "PYTHONPATH": str(ROOT)}
        enabled = "--ServerApp.jpserver_extensions=tfgpu_magic.server=True"
        with serving(machine, home, options=[enabled], environment=environment) as server:
            notebook = Notebook(server, "train.ipynb")
            notebook.run(f"from tests.simgpu.on_machine import allocate; allocate({GIB})")
            until(lambda: row_of(server, lambda row: row.get("kernel") == notebook.kernel))
            yield machine, server, notebook
            assert notebook.run("print('goes on')") == "goes on\n"
            assert machine.held(pid=notebook.pid) > GIB
            notebook.end()
        end_collectors(machine)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all users can reach, and only root can write to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def until_read_anew() -> None:
    before = machine_board.read_published()
    assert before
    until(lambda: (seen := machine_board.read_published()) and seen.sequence > before.sequence)


def refused(uid: int, **tries: Callable[[], object]) -> None:
    """Have a user try things, and see the system refuse each."""
    for name, one in tries.items():
        answer = as_user(uid, one)
        assert isinstance(answer, OSError), name
        assert answer.errno in (errno.EPERM, errno.EACCES), name


@attack("makes the board's directory")
def test_a_board_that_a_user_made(lab: Lab, place: Path) -> None:
    made = place / "machine.run"
    refused(EVE, mkdir=made.mkdir, link=lambda: made.symlink_to(lab.board))
    place.chmod(0o1777)

    def copy() -> None:
        made.mkdir()
        shutil.copy(lab.board / SNAPSHOT, made)

    def look() -> str:
        os.environ["TFGPU_SIMGPU"] = str(place / "machine")
        with closing(MachineBoard()) as board:
            return "read" if board.read() else board.why_not

    as_user(EVE, copy)
    assert (made / SNAPSHOT).stat().st_uid == EVE
    assert "can be written to by others than root" in as_user(ANN, look)
    place.chmod(0o755)
    assert f"belongs to user {EVE}" in as_user(ANN, look)
    for path in (made, made / SNAPSHOT):
        os.chown(path, 0, 0)
    assert as_user(ANN, look) == "read"  # of root, it would be one
    shutil.rmtree(made)
    place.chmod(0o1777)
    as_user(EVE, lambda: made.symlink_to(lab.board))
    place.chmod(0o755)
    assert made.lstat().st_uid == EVE
    assert "not a directory that can be read" in as_user(ANN, look)


@attack("writes to the board")
def test_a_board_that_a_user_writes_to(lab: Lab) -> None:
    board = lab.board / SNAPSHOT
    refused(
        EVE,
        write=lambda: os.open(board, os.O_RDWR),
        truncate=lambda: os.truncate(board, 0),
        make=lambda: (lab.board / "mine").mkdir(),
        remove=board.unlink,
        replace=lambda: board.rename(lab.board / "other"),
        lock=lambda: os.open(lab.board / "lock", os.O_RDONLY),
        open_to_all=lambda: lab.board.chmod(0o777),
    )


@attack("locks the board for good")
def test_a_board_that_a_user_locks(lab: Lab) -> None:
    board = lab.board / SNAPSHOT
    with acting(EVE, lambda: fcntl.flock(os.open(board, os.O_RDONLY), fcntl.LOCK_EX)) as eve:
        assert eve.answer is None
        with board.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        until_read_anew()
        until(lab.true)


@attack("makes a hard link to the board")
def test_a_board_that_a_user_links_to(lab: Lab, place: Path) -> None:
    place.chmod(0o1777)
    link = place / "link"
    answer = as_user(EVE, lambda: link.hardlink_to(lab.board / SNAPSHOT))
    if isinstance(answer, PermissionError):
        link.hardlink_to(lab.board / SNAPSHOT)  # as where the system lets her
    assert (lab.board / SNAPSHOT).stat().st_nlink == 2
    until_read_anew()
    until(lab.true)


@attack("takes the place of another user's own board in `/tmp`")
def test_a_place_that_a_user_takes(lab: Lab, place: Path) -> None:
    place.chmod(0o1777)
    taken, hers = place / f"tfgpu_magic-{ANN}", place / "hers"
    assert as_user(EVE, hers.mkdir) is None

    def where() -> tuple[Path, str]:
        os.environ.pop("TFGPU_MAGIC_DIR", None)
        entry = SimpleNamespace(pw_dir=str(lab.home(ANN)))
        with (
            mock.patch.object(directory, "_TEMPORARY", place),
            mock.patch("pwd.getpwuid", return_value=entry),
            BoardDirectory() as found,
        ):
            return found.path, found.passed_over

    for plant in (taken.mkdir, lambda: taken.symlink_to(hers), lambda: os.mkfifo(taken)):
        assert as_user(EVE, plant) is None
        assert taken.lstat().st_uid == EVE
        path, why = as_user(ANN, where)
        assert path.parent == lab.home(ANN) / ".cache/tfgpu_magic"
        assert str(taken) in why
        taken.rmdir() if taken.is_dir() and not taken.is_symlink() else taken.unlink()
    assert list(hers.iterdir()) == []


@attack("fills the board with processes")
def test_a_board_that_a_user_floods(lab: Lab) -> None:
    many = 2 * TOLD_APART
    told = {("1", "unknown"): many * 20 * MIB}
    ranges = f"0 {EVE} 1\n1 {CONTAINERS[0]} {CONTAINERS[1]}\n"
    with container(ranges, *range(1, many + 1)) as pids, ExitStack() as rows:
        for pid in pids:
            rows.enter_context(lab.machine.add_row(pid, 1, "20MiB"))
        until(lab.told, lambda held: told.items() <= held.items())
        assert len(lab.machine.processes()) > TOLD_APART
        seen = machine_board.read_published()
        assert seen
        assert len(seen.snapshot.processes) <= TOLD_APART + 2
        assert {row.uid for row in seen.snapshot.processes} == {ANN, EVE}
        assert lab.told("processes") == {("0", "nobody"): 1}
        until(lab.true)
    until(lab.told, lambda held: told.keys().isdisjoint(held))


@attack("stops, kills, traces or slows down the services")
def test_services_that_a_user_signals(lab: Lab) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def trace(pid: int) -> None:
        if libc.ptrace(16, pid, 0, 0):  # PTRACE_ATTACH
            raise OSError(ctypes.get_errno(), "")

    for pid in (lab.service.pid, lab.exporter.pid):
        refused(
            EVE,
            kill=partial(os.kill, pid, signal.SIGKILL),
            stop=partial(os.kill, pid, signal.SIGSTOP),
            trace=partial(trace, pid),
            read=partial(os.open, f"/proc/{pid}/mem", os.O_RDONLY),
            environ=partial(os.open, f"/proc/{pid}/environ", os.O_RDONLY),
            bound=partial(resource.prlimit, pid, resource.RLIMIT_NOFILE, (0, 0)),
            slow=partial(os.setpriority, os.PRIO_PROCESS, pid, 19),
            pin=partial(os.sched_setaffinity, pid, {0}),
        )
    assert (lab.service.poll(), lab.exporter.poll()) == (None, None)


@attack("gets the pid of another user's process that has ended")
def test_a_pid_that_a_user_gets() -> None:
    def scene() -> None:
        with laboratory() as lab:
            gone = lab.machine.add_neighbour("1GiB@1", user=ANN)
            until(lab.told, lambda held: held == {("0", "nobody"): HELD, ("1", "nobody"): GIB})
            gone.stop()
            choose_pid(gone.pid)
            with acting(EVE, lambda: None) as eve, lab.machine.add_row(eve.pid, 1, "3GiB"):
                assert eve.pid == gone.pid
                assert [row.owner.pid for row in lab.seen(ANN).processes if row.owner.who == "mine"] == [lab.ann.pid]
                until(lab.told, lambda held: held == {("0", "nobody"): HELD, ("1", "unknown"): 3 * GIB})

    among_own_pids(scene)


@attack("names processes like labels")
def test_names_that_a_user_gives(lab: Lab) -> None:
    def call() -> int | None:
        Path("/proc/self/comm").write_text(") S 1 1 1 1 1")
        return start_time(os.getpid())

    neighbour = lab.machine.add_neighbour("1GiB@1", name=f"'{EVIL}'", user=EVE)
    assert EVIL in Path(f"/proc/{neighbour.pid}/cmdline").read_text()
    with neighbour, acting(EVE, call) as eve, lab.machine.add_row(eve.pid, 1, "1GiB"):
        assert Path(f"/proc/{eve.pid}/comm").read_text() == ") S 1 1 1 1 1\n"
        until(lab.told, lambda held: held.get(("1", "unknown")) == 2 * GIB)
        seen = machine_board.read_published()
        assert seen
        starts = {row.pid: (row.uid, row.began) for row in seen.snapshot.processes if row.gpu == "1"}
        assert starts[eve.pid] == (EVE, eve.answer)
        for text in ((lab.board / SNAPSHOT).read_bytes(), lab.scraped(), repr(lab.seen(ANN)).encode()):
            assert str(neighbour.pid).encode() in text or text.startswith((b"#", b"Table"))
            assert b"script" not in text
        until(lab.true)


@attack("runs in cgroups that are named like another user's container")
def test_cgroups_that_a_user_names() -> None:
    ident, pod = "d" * 64, "12345678-1234-1234-1234-123456789abc"
    with cgroup2() as root, Machine.create() as machine:
        slices = f"user.slice/user-{EVE}.slice/user@{EVE}.service"
        hers = root / slices
        hers.mkdir(parents=True)
        os.chown(hers, EVE, EVE)  # as systemd gives it to her
        for name, victim in (
            (f"system.slice/docker-{ident}.scope", f"container:{ident}"),
            (f"kubepods/pod{pod}/{ident}", f"pod:{pod}/{ident}"),
            ("system.slice/jupyter-ann-singleuser.service", "unit:jupyter-ann-singleuser.service"),
        ):
            assert as_user(EVE, partial((hers / name).mkdir, parents=True)) is None
            with machine.add_neighbour("1GiB@0", user=EVE, cgroup=hers / name) as neighbour:
                text = Path(f"/proc/{neighbour.pid}/cgroup").read_text()
                text = re.sub(r"(?m)^0::.*(?=/user\.slice)", "0::", text)  # the test's own folder, in which all this is
            assert cgroup_name(text) == f"unit:user-{EVE}.slice"
            assert cgroup_name(text.replace(f"/{slices}", "")) == victim  # but for where it is, it would be theirs
        lines = as_user(EVE, (hers / f"x\n0::/system.slice/docker-{ident}.scope").mkdir)
        assert isinstance(lines, OSError)


@attack("keeps 1,000 silent connections to the exporter")
def test_an_exporter_that_a_user_holds_up(lab: Lab) -> None:
    port = int(lab.url.rpartition(":")[2].partition("/")[0])
    clients: list[socket.socket] = []

    def connect() -> int:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        clients.extend(socket.create_connection(("127.0.0.1", port)) for _ in range(1000))
        return len(clients)

    def flood(start: bytes) -> bytes:
        answer = b""
        with socket.create_connection(("127.0.0.1", port)) as client, suppress(ConnectionError):
            client.sendall(start)
            with suppress(ConnectionError):  # it has closed the connection before the end
                client.sendall(b"x" * 10_000_000)
            answer = client.recv(100)
        return answer

    def answered() -> bool:
        """Scrape, and tell whether Eve's connections have stayed open until then: none has made room."""
        with acting(EVE, connect) as eve:
            assert eve.answer == 1000
            told = lab.told()
            return ("0", "nobody") in told and psutil.Process(lab.exporter.pid).num_fds() > 1000

    until(answered)
    until(lab.true)
    for start in (b"GET /", b"GET /metrics HTTP/1.1\r\nX: "):
        assert b" 200 " not in as_user(EVE, partial(flood, start))
        until(lab.true)


@attack("replaces the administrator's file")
def test_a_file_that_a_user_plants(place: Path) -> None:
    with limited(place) as site, watching(site):
        hers, state = place / "hers.toml", site.state
        refused(
            EVE,
            write=lambda: os.open(site.file, os.O_WRONLY),
            replace=lambda: site.file.rename(place / "before"),
            limits=lambda: os.open(state, os.O_WRONLY),
            limits_anew=lambda: state.with_suffix(".new").write_text("{}"),
            lock=lambda: os.open(state.with_name("lock"), os.O_RDONLY),
        )
        place.chmod(0o777)

        def file() -> None:
            hers.write_text('[limits]\nhard = "90%"\n')
            hers.rename(site.file)

        def link() -> None:
            hers.write_text('[limits]\nhard = "90%"\n')
            (place / "link").symlink_to(hers)
            (place / "link").rename(site.file)

        for number, plant in enumerate((file, link)):
            site.write(FILE)
            until(lambda: not site.in_force()["flaw"])
            assert as_user(EVE, plant) is None
            assert site.file.lstat().st_uid == EVE
            until(lambda: site.in_force()["flaw"])
            late = site.make(f"user.slice/user-7001{number}.slice")
            until(partial(site.limits, late), lambda limits: limits == (GIB, 8 * GIB))
            assert site.limits(site.ann) == site.limits(site.bob) == (GIB, 8 * GIB)


@attack("removes the cgroup that is limited")
def test_cgroups_that_a_user_makes(place: Path) -> None:
    with limited(place) as site, watching(site):
        bob, slices = site.bob, site.root / "user.slice"
        hers = site.make(f"user.slice/{bob.name}/user@{EVE}.service")
        os.chown(hers, EVE, EVE)  # as systemd gives it to her
        foreign = site.make("user.slice/user-70009.slice")
        os.chown(foreign, EVE, EVE)  # as if she had made it
        refused(
            EVE,
            remove=bob.rmdir,
            make=(slices / "user-70003.slice").mkdir,
            unit=(site.root / "jupyter-ann.service").mkdir,
            leave=lambda: (slices / "cgroup.procs").write_text("0"),
        )
        planted = [hers / name for name in ("user.slice/user-0.slice", "system.slice/jupyter-ann.service")]
        for one in planted:
            assert as_user(EVE, partial(one.mkdir, parents=True)) is None
        site.write("".join([FILE, *(f'paths."{one}" = {{ hard = "90%" }}\n' for one in planted)]))
        last = site.make("user.slice/user-70010.slice")
        until(lambda: site.limits(last) == (GIB, 8 * GIB))
        until(lambda: str(last) in site.in_force()["limits"])
        assert not {*map(str, (*planted, hers, foreign))} & site.in_force()["limits"].keys()
        with pytest.raises(SimulatorError, match="out of memory"):
            site.machine.add_neighbour("9GiB@0", user=EVE, cgroup=planted[0])
        with site.machine.add_neighbour("9GiB@0", user=EVE, cgroup=slices):  # elsewhere there is room
            assert site.limits(site.ann) == (GIB, 8 * GIB)


@attack("puts modules where root's Python may find them")
def test_a_path_for_roots_python(lab: Lab, place: Path) -> None:
    place.chmod(0o1777)
    for name in ("pynvml.py", "tomllib.py"):
        as_user(EVE, partial((place / name).write_text, "print('planted')"))
    environ = {**os.environ, "PYTHONPATH": str(place)}
    hit = subprocess.run([sys.executable, "-c", "import pynvml"], env=environ, capture_output=True, text=True)
    assert hit.stdout == "planted\n"
    for user in ("--show", "--once"):
        done = tfgpu(lab.machine, "limits", user, cwd=place, env={"PYTHONPATH": str(place)})
        assert done.stdout.startswith(("No limit is set", "Nothing was done"))
        assert "planted" not in done.stdout + done.stderr


@attack("puts libraries where another user's are kept")
def test_libraries_that_a_user_plants(place: Path) -> None:
    (place / "file").touch()  # in the way of a cache of one's own
    place.chmod(0o1777)
    kept = place / f"tfgpu_magic-simgpu-{os.getuid()}"
    planted = kept / build.libraries().name

    def plant() -> None:
        planted.mkdir(parents=True)
        (planted / build.CORE).write_text("planted")
        for folder in (kept, planted):
            folder.chmod(0o755)

    def found() -> str:
        code = "from tfgpu_magic.simgpu.build import libraries; print(libraries())"
        environ = {**os.environ, "XDG_CACHE_HOME": str(place / "file"), "TMPDIR": str(place)}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
        return (done.stdout or done.stderr).splitlines()[-1]

    assert as_user(EVE, plant) is None
    assert kept.stat().st_uid == EVE
    assert "there is nowhere to keep the simulator's libraries" in found()
    os.chown(kept, 0, 0)
    assert "there is nowhere to keep the simulator's libraries" in found()  # others may have put something there
    kept.chmod(0o700)
    assert found() == str(planted)


@attack("writes a report")
def test_a_report_that_a_user_plants(lab: Lab, place: Path) -> None:
    board = place / "board"
    board.mkdir(mode=0o700)
    os.chown(board, ANN, ANN)
    report = Report(pid=lab.ann.pid, summary="Planted.")

    def plant() -> str:
        with BoardDirectory(lab.home(EVE) / "board") as own:
            name = own.full_name(f"{PREFIX}{os.getpid()}-00000000")
        fd = os.open(board / name, os.O_RDWR | os.O_CREAT)
        os.fchmod(fd, 0o666)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        os.pwrite(fd, report.to_json().encode(), 0)
        return name

    def read() -> dict[int, str]:
        os.environ["TFGPU_MAGIC_DIR"] = str(board)
        with BoardDirectory() as own:
            return {one.pid: one.summary for one in ReportFiles(own).read()}

    refused(EVE, make=plant, list=lambda: list(board.iterdir()))
    board.chmod(0o777)
    with acting(EVE, plant) as eve:
        planted = board / eve.answer
        assert planted.stat().st_uid == EVE
        assert isinstance(as_user(ANN, read), MonitorError)  # others can write there
        board.chmod(0o700)
        assert as_user(ANN, read) == {}
        os.chown(planted, ANN, ANN)
        assert as_user(ANN, read) == {eve.pid: "Planted."}  # of Ann, it would be one


@attack("reads what another user's notebook is called")
def test_what_a_user_reads(lab: Lab) -> None:
    assert "secret" in repr(lab.seen(ANN))
    (hers,) = (row for row in lab.seen(EVE).processes if row.process.gpu == "0")
    assert (hers.owner.text, hers.process.held, hers.owner.who) == ("nobody", HELD, "other")
    assert hers.owner.notebook is None
    board = as_user(EVE, (lab.board / SNAPSHOT).read_bytes)
    assert str(lab.ann.pid).encode() in board
    assert b"nobody" in lab.scraped()
    for text in (board, lab.scraped(), repr(lab.seen(EVE)).encode()):
        assert b"secret" not in text
    assert (lab.board / HOURS).exists()
    own = lab.board / f"{HOURS}-{ANN}"
    until(own.exists)
    assert set(json.loads(as_user(ANN, own.read_bytes))["totals"]["uid"]) == {ANN}
    refused(EVE, hours=(lab.board / HOURS).read_bytes, own=own.read_bytes, home=lambda: list(lab.home(ANN).iterdir()))


@attack("asks another user's Jupyter server")
def test_a_server_that_a_user_asks(served: tuple[Machine, Server, Notebook]) -> None:
    machine, server, notebook = served
    target = {"pid": notebook.pid, "kernel": notebook.kernel, "began": start_time(notebook.pid)}

    def seen(path: str, **options: Any) -> int:
        try:
            with server.open(f"tfgpu-magic/{path}", **options) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    def ask(headers: dict[str, str]) -> list[int]:
        acted = [post(server, action, target, headers=headers)[0] for action in ("stop", "end", "idle")]
        large = post(server, "end", {"pid": "x" * 10_000_000}, headers=headers)[0]
        found = [seen(path, headers=headers) for path in ("snapshot", "idle")]
        return [*acted, large, *found, streaming.refused(server, headers=headers)]

    assert (seen("snapshot"), seen("idle"), streaming.refused(server)) == (200, 200, 101)
    for headers in ({}, {"Authorization": f"token {'0' * 48}"}):
        assert as_user(EVE, partial(ask, headers)) == [403] * 7
    assert machine.held(pid=notebook.pid) > GIB


@attack("sends another user's kernel a message")
def test_a_kernel_that_a_user_asks(served: tuple[Machine, Server, Notebook]) -> None:
    machine, server, notebook = served
    file = server.runtime / f"kernel-{notebook.kernel}.json"
    refused(EVE, key=file.read_text)

    def say() -> None:
        client.load_connection_info(json.loads(told) | {"key": "guessed"})  # /proc/net/tcp has the ports
        client.start_channels(iopub=False, stdin=False, hb=False)
        client.execute("import os; os._exit(1)", user_expressions={"answer": "os._exit(1)"})
        client.shutdown()

    client = BlockingKernelClient()  # it is there as long as Eve's process: what is sent comes
    told = file.read_text()
    with acting(EVE, say) as eve:
        assert eve.answer is None
        until(lambda: server.log.read_text().count("Invalid Signature") >= 2)
    assert notebook.run("print('goes on')") == "goes on\n"
    assert machine.held(pid=notebook.pid) > GIB


@attack("has the own server stop or end another user's process")
def test_a_process_that_a_users_own_server_is_asked_to_end(served: tuple[Machine, Server, Notebook]) -> None:
    machine, server, notebook = served
    with machine.add_neighbour("1GiB@0", user=ANN) as ann, machine.add_neighbour("1GiB@0") as own:
        row_of(server, lambda row: row.get("pid") == own.pid)
        row_of(server, lambda row: row.get("owner") == "nobody")
        target = {"pid": ann.pid, "kernel": notebook.kernel, "began": start_time(ann.pid)}
        for action in ("stop", "end", "idle"):
            assert [post(server, action, target | {"kill": kill})[0] for kill in (False, True)] == [404, 404]
        assert machine.held(pid=ann.pid) == GIB
        assert post(server, "end", {"pid": own.pid, "began": start_time(own.pid), "kill": True})[0] == 204
        until(lambda: machine.held(pid=own.pid) == 0)
        ann.resize("2GiB")  # it lives


def test_each_row_of_the_page_is_an_attack() -> None:
    table = (ROOT / "SECURITY.md").read_text().partition("## What one user may try on another")[2]
    rows = re.findall(r"(?m)^\| (.*) \| .* \|$", table)[1:]

    assert len(rows) == len(TRIED)
    assert [row for row, tried in zip(rows, TRIED, strict=True) if not row.startswith(tried)] == []
