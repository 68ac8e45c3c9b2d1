"""Whose a pid is, and what is never read to find it out."""

from __future__ import annotations

import itertools
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.containers import container
from tests.processes import among_own_pids, choose_pid
from tests.waiting import until
from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.process_kind import SIMULATED_USER
from tfgpu_magic.ground.report import Report
from tfgpu_magic.ground.rows import Notebook, Owner
from tfgpu_magic.machine.owners import attribution as owning
from tfgpu_magic.machine.owners import holders, pids, users
from tfgpu_magic.machine.owners.attribution import _FIRST, Owners, merge_notebooks
from tfgpu_magic.machine.owners.cgroups import cgroup_name
from tfgpu_magic.machine.owners.holders import HolderFacts, read_holder, read_users_holder
from tfgpu_magic.machine.owners.pids import family, opens_driver, short_command, start_time
from tfgpu_magic.machine.owners.users import Users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgpu_magic.ground.rows import Who

    Start = Callable[..., int]

NOBODY = 65534
ELSE = 2**22 + 7  # the pid of a kernel that is none of our parents
SECRET = "--password=hunter2"
CONNECTION = "/run/user/1000/jupyter/kernel-7f3a.json"
"""What the command line of each kernel names."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts another user's process")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """What a process of a simulated machine has open; the process that asks has it too."""
    with (tmp_path / "machine").open("w") as file:
        monkeypatch.setenv("TFGPU_SIMGPU", file.name)
        yield file.fileno()


@pytest.fixture
def start(tmp_path: Path, driver: int) -> Iterator[Start]:
    """Start processes that wait, named for a script, with the driver open or not; each prints a line when it runs."""
    script = tmp_path / "train.py"
    script.write_text("print(flush=True); input()")
    started = []

    def start(*words: str, user: int | None = None, drives: bool = True, notebook: str = "", **environment: str) -> int:
        command = words or (sys.executable, str(script), SECRET)
        if notebook:
            command, environment = (*command, CONNECTION), {**environment, "JPY_SESSION_NAME": notebook}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=user,
            cwd="/",
            env={"A": "b", **environment},
            pass_fds=[driver] if drives else [],
        )
        started.append(process)
        assert process.stdout
        process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.communicate(b"\n")


def find(pid: int, *, kernel: int = ELSE) -> Owner:
    return Owners(kernel).find([pid, os.getpid()])[pid]


@pytest.mark.usefixtures("driver")
def test_the_process_that_asks_is_this_notebook() -> None:
    pid = os.getpid()

    this = Owner(pid=pid, who="this", text="this program", kernel=pid, began=start_time(pid))
    assert Owners().find([pid]) == {pid: this}


def test_its_children_are_this_notebooks_and_named_by_their_script(start: Start) -> None:
    owner = find(start(), kernel=os.getpid())

    assert owner.who == "this"
    assert owner.child.startswith("python")
    assert owner.child.endswith(" train.py")
    assert owner.text == f"this program's {owner.child}"


@pytest.mark.parametrize(
    ("how", "who", "name"),
    [
        ({"notebook": "/home/me/work/eval.ipynb"}, "mine", "eval.ipynb"),
        # It has the notebook's variables, and is left of it.
        ({"JPY_SESSION_NAME": "/home/me/work/eval.ipynb"}, "mine", "python train.py, started from eval.ipynb"),
        ({"JPY_SESSION_NAME": "/home/me/work/"}, "mine", "python train.py"),  # a session without a name
        ({}, "mine", "python train.py"),  # and no other argument
        ({"drives": False}, "gone", "a process that ended"),  # where others have the driver open, it had that pid
    ],
)
def test_another_process_of_mine_is_named_by_its_notebook_or_by_its_script(
    start: Start, how: dict[str, Any], who: str, name: str
) -> None:
    owner = find(start(**how))

    assert (owner.who, owner.text) == (who, name)


@needs_root
def test_another_user_is_a_user_name_and_nothing_else(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # The shell, because another user may not be allowed to run this Python.
    pid = start("/bin/sh", "-c", "echo; read line", SECRET, user=NOBODY, JPY_SESSION_NAME="secret.ipynb")

    public, text = {"stat", "status"}, pids.read_text

    def read(pid: int, name: str = "") -> str:
        assert name in public, "read what is nobody else's business"
        return text(pid, name)

    for room, asked in ((pids, "read_text"), (pids, "opens_driver"), (owning, "ancestors")):
        monkeypatch.setattr(room, asked, read)
    owner = Owners(kernel=ELSE).find([pid])[pid]

    assert owner == Owner(pid=pid, who="other", text="nobody")


def test_of_whom_a_collector_has_read_the_user_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("read of another user's process")

    for asked in ("is_alive", "_read_process"):
        monkeypatch.setattr(owning, asked, read)
    found = Owners(kernel=ELSE).find([7, 8, 0], users={7: NOBODY, 8: 4_000_000})

    assert found == {
        7: Owner(pid=7, who="other", text="nobody"),
        8: Owner(pid=8, who="other", text="4000000"),
    }


def test_a_user_whose_name_does_not_come_has_a_number_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(users, "user_name", lambda _: answers.wait() and "nobody")
    monkeypatch.setattr(users, "USER_TIMEOUT", 0.01)
    names = Users()
    before = [names.name(NOBODY), names.name(NOBODY)]
    answers.set()

    assert before == [str(NOBODY)] * 2
    assert until(lambda: names.name(NOBODY), lambda name: name == "nobody")


def test_who_has_no_name_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [str(NOBODY), "nobody"]
    monkeypatch.setattr(users, "user_name", lambda _: answers.pop(0))
    monkeypatch.setattr(users, "USER_TIMEOUT", 60.0)
    names = Users()

    assert [names.name(NOBODY) for _ in range(3)] == [str(NOBODY), "nobody", "nobody"]


@needs_root
def test_a_view_that_is_open_takes_no_other_process_for_what_had_its_pid(start: Start) -> None:
    def ticks() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")

    def scene() -> None:
        view, gone = Owners(kernel=ELSE, trust=1e9), start("/bin/sh", "-c", "echo; read line")
        start_tick = start_time(gone) or 0
        view._seen[gone] = owning._CachedRecord(
            owning._ProcessRecord(start_tick, drives=True), "mine", time.monotonic()
        )
        assert view.find([gone])[gone].who == "mine"
        os.kill(gone, signal.SIGKILL)
        os.waitpid(gone, 0)
        until(lambda: ticks() > start_tick + 1)  # of processes that begin in one tick none can be told from another
        choose_pid(gone)

        assert start("/bin/sh", "-c", "echo; read line", user=NOBODY) == gone
        assert view.find([gone], users={gone: os.geteuid()})[gone].who == "other"

    among_own_pids(scene)


def test_my_further_processes_are_mine(start: Start) -> None:
    pid = start()
    found = Owners(kernel=ELSE).find([pid, -1], users={pid: os.geteuid(), -1: os.geteuid()})

    assert [(found[one].who, found[one].text) for one in (pid, -1)] == [
        ("mine", "python train.py"),
        ("mine", "further processes"),
    ]


@needs_root
def test_a_simulated_machine_names_its_other_user(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIMULATED_USER, "maria")
    theirs, ours = start("/bin/sh", "-c", "echo; read line", user=NOBODY), start()
    found = Owners(kernel=ELSE).find([theirs, ours])
    monkeypatch.delenv("TFGPU_SIMGPU")

    assert [found[theirs].text, found[ours].text] == ["maria", "python train.py"]
    assert Owners(kernel=ELSE).find([theirs])[theirs].text == "nobody"  # no simulated machine: the system's word


def test_what_a_notebook_has_left_behind_is_neither_its_kernel_nor_busy_with_it(start: Start) -> None:
    kernel, left = start(notebook="eval.ipynb"), start(JPY_SESSION_NAME="eval.ipynb")
    known = {kernel: Notebook(path="eval.ipynb", kernel="7f3a", state="busy")}
    found = Owners(kernel=ELSE).find([kernel, left], known)

    assert (found[kernel].text, found[kernel].notebook) == ("eval.ipynb", known[kernel])
    assert (found[left].notebook, found[left].kernel) == (None, left)


def test_a_fork_that_outlives_its_kernel_is_what_the_notebook_has_left(start: Start, tmp_path: Path) -> None:
    """It has its kernel's command line; Jupyter starts each kernel in a session of its own."""
    fork = "import os, sys; os.setsid(); os.fork() and os._exit(0)"
    lasts = "open(sys.argv[1], 'w').write(str(os.getpid())); print(flush=True); input()"
    fork = fork.replace("os._exit(0)", "(open(sys.argv[2]).read(), os._exit(0))")
    os.mkfifo(end := tmp_path / "end")
    kernel = start(sys.executable, "-c", f"{fork}\n{lasts}", str(tmp_path / "pid"), str(end), notebook="eval.ipynb")
    left, owners = int(until((tmp_path / "pid").read_text)), Owners(kernel=ELSE)
    with_it = owners.find([left, os.getpid()])[left]
    end.write_text("")
    os.waitpid(kernel, 0)
    found = [owners.find([left, os.getpid()])[left], find(left)]  # also where the kernel was there before

    assert with_it.kernel == kernel
    assert {(owner.text, owner.notebook, owner.kernel) for owner in found} == {
        ("python, started from eval.ipynb", None, left)
    }


def test_a_program_that_a_kernel_has_forked_off_twice_is_no_second_kernel(start: Start, tmp_path: Path) -> None:
    lasts = "print(flush=True); input()"
    forks = "os.fork() or (os.fork() and os._exit(0), open(sys.argv[1], 'w').write(str(os.getpid())), time.sleep(600))"
    code = f"import os, sys, time; os.setsid(); {forks}; {lasts}"
    kernel = start(sys.executable, "-c", code, str(tmp_path / "pid"), notebook="eval.ipynb")
    left = int(until((tmp_path / "pid").read_text, despite=OSError))
    found = Owners(kernel=ELSE).find([left, kernel])
    os.kill(left, signal.SIGKILL)

    assert (found[kernel].text, found[kernel].kernel) == ("eval.ipynb", kernel)
    assert (found[left].text, found[left].notebook) == ("python, started from eval.ipynb", None)


def test_a_notebooks_name_is_read_before_the_long_command_of_its_worker(start: Start, tmp_path: Path) -> None:
    (tmp_path / "a_long_package_of_a_library.py").write_text("print(flush=True); input()")
    worker = f"{sys.executable} -m a_long_package_of_a_library; true"
    kernel = start("/bin/sh", "-c", worker, CONNECTION, JPY_SESSION_NAME="mine.ipynb", PYTHONPATH=str(tmp_path))
    (pid,) = (child.pid for child in psutil.Process(kernel).children())
    text = phrases.clean(Owners(kernel=ELSE).find([pid], {kernel: Notebook(path="mine.ipynb")})[pid].text)

    assert text == "mine.ipynb's python -m ...f_a_library"


@pytest.mark.parametrize("reports", [False, True])
def test_a_kernel_behind_a_wrapper_is_its_servers(start: Start, tmp_path: Path, reports: bool) -> None:
    """The server knows the pid of `conda run`, which is not replaced by the kernel that it starts."""
    run = f"{sys.executable} {tmp_path}/train.py $0; true"
    wrapper = start("/bin/sh", "-c", run, CONNECTION, JPY_SESSION_NAME="eval.ipynb")
    (kernel,) = (child.pid for child in psutil.Process(wrapper).children())
    served = {wrapper: Notebook(path="lab/eval.ipynb", kernel="7f3a", state="idle")}
    report = Report(pid=kernel, summary="", notebook="eval.ipynb", kernel="7f3a")
    owner = Owners(kernel=ELSE).find([kernel], merge_notebooks([report] if reports else [], served))[kernel]

    assert (owner.text, owner.kernel, owner.notebook) == ("eval.ipynb", kernel, served[wrapper])


def test_a_notebook_is_called_as_it_was_last_renamed(start: Start) -> None:
    pid = start(notebook="/home/me/Untitled.ipynb")

    assert Owners(kernel=ELSE).find([pid], names={"7f3a": "/home/me/train.ipynb"})[pid].text == "train.ipynb"


def test_a_process_that_ended_meanwhile_keeps_its_name_for_one_tick(start: Start) -> None:
    pid = start(notebook="eval.ipynb")
    owners = Owners(kernel=ELSE)
    owners.find([pid])
    psutil.Process(pid).kill()
    os.waitpid(pid, 0)

    assert owners.find([pid])[pid] == Owner(pid=pid, who="gone", text="eval.ipynb, ended")


def test_a_process_that_is_trusted_is_not_read_again_and_its_end_is_seen_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start(notebook="eval.ipynb")
    owners = Owners(kernel=ELSE, trust=60)
    first = owners.find([pid])
    with monkeypatch.context() as patch:
        patch.delattr(owning, "_read_process")
        again = owners.find([pid])
    psutil.Process(pid).kill()
    os.waitpid(pid, 0)
    ended = [owners.find([pid])[pid].text for _ in range(2)]

    assert again == first
    assert ended == ["eval.ipynb, ended"] * 2


def test_one_that_cannot_be_read_keeps_its_name_is_asked_once_by_all_and_holds_up_no_other(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, fine, never, asked = start(notebook="eval.ipynb"), start(), threading.Event(), list[int]()
    owners = Owners(kernel=ELSE)
    owners.find([stuck])

    def hang(pid: int) -> str:
        asked.append(pid)
        assert pid != stuck or never.wait(60)
        return "python train.py"

    with monkeypatch.context() as patch:
        patch.setattr(owning, "command_name", hang)
        twice = [owners.find([stuck, fine]) for _ in range(2)]
        others = {Owners(kernel=ELSE).find([stuck])[stuck].text for _ in range(2)}
        waited = never.is_set()
        never.set()
    after = until(lambda: owners.find([stuck])[stuck].text, lambda text: text == "eval.ipynb")

    texts = ["eval.ipynb, does not answer", "python train.py"]
    assert [[found[pid].text for pid in (stuck, fine)] for found in twice] == [texts, texts]
    assert (asked.count(stuck), len(others), waited, after) == (1, 1, False, "eval.ipynb")


def test_a_pid_that_was_given_anew_is_another_owner(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = start(notebook="first.ipynb")
    owners = Owners(kernel=ELSE)
    owners.find([pid])
    monkeypatch.setattr(owning, "start_time", lambda _: 0)
    monkeypatch.setattr(owning, "notebook_of_kernel", lambda _: "second.ipynb")

    assert owners.find([pid])[pid].text == "second.ipynb"


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("hidden", "who", "text"), [(False, "gone", "a process that ended"), (True, "other", "another user")]
)
def test_an_unknown_pid_among_known_ones_has_ended_or_is_another_users_that_proc_hides(
    monkeypatch: pytest.MonkeyPatch, hidden: bool, who: Who, text: str
) -> None:
    def hide(pid: int, signal: int) -> None:
        raise PermissionError

    if hidden:
        monkeypatch.setattr(os, "kill", hide)

    assert find(2**22 + 1) == Owner(pid=2**22 + 1, who=who, text=text)


def test_pids_of_which_none_is_one_of_the_drivers_here_are_unknown_whatever_has_such_a_number(start: Start) -> None:
    quiet = start(notebook="quiet.ipynb", drives=False)  # a kernel that has touched no GPU
    owners = Owners(0).find([quiet, 2**22 + 1, 2**40], {quiet: Notebook(path="quiet.ipynb", kernel="k")})

    assert {(owner.who, owner.text, owner.notebook) for owner in owners.values()} == {("unknown", "others", None)}


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="there are no devices here")
def test_a_device_of_the_driver_that_is_open_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    before = opens_driver(os.getpid())
    monkeypatch.setattr(pids, "_DEVICES", ("/dev/null",))
    with Path("/dev/null").open():
        assert (before, opens_driver(os.getpid()), opens_driver(2**22 + 1)) == (False, True, None)


@pytest.mark.skipif(
    str(Path("/proc/self/ns/pid").readlink()) != _FIRST, reason="in a container numbers may be the host's"
)
def test_the_only_process_that_has_just_ended_is_no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    owner = Owners().find([2**22 + 1])[2**22 + 1]

    assert (owner.who, owner.text) == ("gone", "a process that ended")


def test_a_program_that_becomes_another_one_is_called_so(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    pid = start("/bin/sh", "-c", f"echo; read line < {tmp_path}/go; exec /bin/cat")
    owners = Owners(kernel=ELSE)
    before = owners.find([pid])[pid].text
    (tmp_path / "go").write_text("\n")
    after = until(lambda: owners.find([pid])[pid].text, lambda text: text != before, every=0.02)

    assert (before, after) == ("sh", "cat")


def test_what_the_kernel_denies_leaves_the_process_name(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(pid: int, name: str) -> str:
        if name in ("cmdline", "environ"):
            raise PermissionError
        return "python" if name == "comm" else text(pid, name)

    pid, text = start(), pids.read_text
    monkeypatch.setattr(pids, "read_text", deny)

    assert find(pid).text == "python"


@pytest.mark.parametrize(
    ("command", "short"),
    [
        ("/usr/bin/python3 /home/me/train.py --key=1", "python train.py"),
        ("python -u -W ignore -X dev train.py", "python train.py"),
        ("python --check-hash-based-pycs always train.py", "python train.py"),
        ("python -m ipykernel_launcher -f kernel.json", "python -m ipykernel_launcher"),
        ("python -m", "python -m"),
        ("python -c print(SECRET)", "python"),
        ("python", "python"),
        ("python /bin/tfgpu run limit -- program_1.py --key=1", "program_1.py"),
        ("python -m tfgpu_magic run growth -- /home/me/program_1.py", "program_1.py"),
        ("python3 -O /bin/tfgpu run growth -- -m package.train SECRET", "python -m package.train"),
        ("python /bin/tfgpu run growth -- -c print(SECRET)", "python"),
        ("python -O -m tfgpu_magic run --called=tool growth -- /bin/tool SECRET", "tool"),
        ("python /bin/tfgpu top", "tfgpu top"),
        ("python /bin/tfgpu", "tfgpu"),
        ("/opt/tool SECRET", "tool"),
        ("", "name"),
    ],
)
def test_a_command_is_short(command: str, short: str) -> None:
    assert short_command("name", command.split()) == short


@needs_root
def test_of_another_users_holder_is_read_whose_it_is_when_it_began_its_cgroup_and_nothing_else(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start("/bin/sh", "-c", "echo; read line", SECRET, user=NOBODY)

    def read(_: object) -> None:
        raise AssertionError("read what is nobody else's business")

    monkeypatch.setattr(pids, "opens_driver", read)

    assert read_users_holder(pid) == HolderFacts(
        NOBODY, start_time(pid), cgroup_name(Path(f"/proc/{pid}/cgroup").read_text())
    )


@pytest.fixture
def subordinates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(users, "SUBORDINATES", tmp_path / "subuid")
    monkeypatch.setattr(users, "_owners", {})
    monkeypatch.setattr(users, "USER_TIMEOUT", 60.0)
    (tmp_path / "subuid").write_text("# comment\n\nmalformed\nnobody:100000:65536\n70001:300000:65536\n")
    return tmp_path / "subuid"


@needs_root
@pytest.mark.parametrize(
    ("users_map", "inside", "counts_for"),
    [
        (f"0 {NOBODY} 1\n1 100000 65536\n", 500, NOBODY),
        ("0 300000 65536\n", 0, 70001),
        ("100000 100000 2\n", 100_001, NOBODY),
        ("0 100500 1\n", 0, 100_500),  # each user can make it of the own number
        ("0 0 4294967295\n", 100_500, 100_500),  # a service with `PrivateUsers=full`
        ("0 900000 65536\n", 5, 900_005),
    ],
)
@pytest.mark.usefixtures("subordinates")
def test_a_process_counts_for_whose_container_it_is_in(users_map: str, inside: int, counts_for: int) -> None:
    with container(users_map, inside) as (pid,):
        assert read_holder(pid).uid == counts_for


@needs_root
@pytest.mark.usefixtures("subordinates")
def test_a_user_of_a_directory_that_is_away_counts_for_nobody_else(start: Start) -> None:
    pid = start("/bin/sh", "-c", "echo; read line", user=100_500)

    assert read_holder(pid).uid == 100_500  # whom the system does not know now, nor knows that there is no such user


@needs_root
def test_what_runs_in_a_container_of_mine_is_mine_and_nothing_is_read_of_it(
    subordinates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subordinates.write_text("root:100000:65536\n")
    monkeypatch.setattr(owning, "command_name", None)
    with container("0 0 1\n1 100000 65536\n", 7) as (pid,):
        view, own = Owners(kernel=ELSE), Owner(pid=pid, who="mine", text="a process in a container of yours")
        uid = read_holder(pid).uid
        assert uid is not None
        for told in ({pid: uid}, {}, {pid: uid}):  # by a board of all users, and by one's own
            assert view.find([pid], users=told)[pid] == own


@needs_root
@pytest.mark.usefixtures("subordinates")
def test_of_many_in_a_container_whose_owner_is_not_told_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, end = list[str](), threading.Event()

    def getpwnam(name: str) -> pwd.struct_passwd:
        asked.append(name)
        end.wait()
        return known

    known = pwd.getpwuid(NOBODY)
    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    monkeypatch.setattr(users, "USER_TIMEOUT", 0.01)
    with container("0 100000 65536\n", *range(12)) as pids:
        assert {read_holder(pid).uid for pid in pids} == set(range(100_000, 100_012))
        until(lambda: asked)
        end.set()
        until(lambda: not any(thread.is_alive() for thread in users._hanging))
        assert {read_holder(pid).uid for pid in pids} == {NOBODY}
    assert asked == ["nobody"]


def test_what_has_ended_or_has_no_driver_open_is_not_what_the_driver_means(start: Start) -> None:
    holds, without, ended = start(), start(drives=False), start()
    psutil.Process(ended).kill()
    os.waitpid(ended, 0)

    assert [read_users_holder(pid).began for pid in (holds, without, ended)] == [start_time(holds), None, None]
    assert [read_holder(pid).began for pid in (without, ended)] == [start_time(without), None]


def test_what_is_read_while_a_pid_is_given_anew_is_nobodys(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    pid, times = start(), itertools.count()
    monkeypatch.setattr(holders, "start_time", lambda _: next(times))

    assert read_holder(pid) == HolderFacts()


def test_the_first_process_of_a_container_is_of_its_own_family() -> None:
    """A notebook's kernel may be that."""
    assert family(1) == {1}
    assert {os.getpid(), os.getppid(), 1} <= family()
