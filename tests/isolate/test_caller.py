"""Whatever becomes of the caller, or of its machine: no orphan, no hang; and a call has from it what a child has."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.isolate import deeds
from tests.isolate.rig import run
from tests.processes import runs
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.isolate.process.inheritance import inheritance
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]

BEGIN = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
from tests.isolate import deeds
from tfgpu_magic.errors import *
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER
from tests.isolate.rig import run
FORK_SERVER.preload = ("numpy", "tests.isolate.deeds")
"""


def start(code: str, *, env: Mapping[str, str] | None = None, within: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start a program that makes calls, in a group of its own."""
    return subprocess.Popen(
        [*within, sys.executable, "-c", BEGIN + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        start_new_session=True,
    )


def told(code: str, *, env: Mapping[str, str] | None = None, within: Sequence[str] = ()) -> str:
    """Return what a program prints that makes calls and ends well."""
    with start(code, env=env, within=within) as program:
        out, err = program.communicate(timeout=240)
    assert (program.returncode, err) == (0, "")
    return out


def wait_for(*marks: Path) -> None:
    until(lambda: all(mark.exists() for mark in marks), every=0.01)


def outlive(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Return the processes that are still there so many seconds later."""
    deadline = time.monotonic() + seconds * SLACK
    while (alive := [one for one in processes if runs(one)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive


@pytest.mark.parametrize("group", [False, True], ids=["alone", "with its group"])
@pytest.mark.parametrize("loop", ["loop_in_python_deaf", "hang_in_c"])
def test_when_the_caller_is_killed_all_are_gone_within_a_second(loop: str, group: bool, tmp_path: Path) -> None:
    code = f"""
    threading.Thread(target=run, args=(deeds.{loop}, ("{tmp_path}/loop",), {{}})).start()
    run(deeds.leave_processes_and_loop, ("{tmp_path}/mark", "{tmp_path}/done"), {{}})
    """
    with start(code) as program:
        wait_for(tmp_path / "loop", tmp_path / "done")
        family = psutil.Process(program.pid).children(recursive=True)
        assert len(family) >= 6
        (os.killpg if group else os.kill)(program.pid, signal.SIGKILL)

        assert not outlive(family, 1.0)


def test_when_the_caller_is_killed_while_its_fork_server_becomes_warm_that_ends_too(tmp_path: Path) -> None:
    code = """
    FORK_SERVER.preload = ("tests.isolate.slow",)
    FORK_SERVER.process()
    print("begun", flush=True)
    time.sleep(60)
    """
    with start(code) as program:
        assert program.stdout is not None
        program.stdout.readline()
        family = psutil.Process(program.pid).children(recursive=True)
        program.kill()

        assert len(family) == 1
        assert not outlive(family, 4.0)


@pytest.mark.parametrize("group", [False, True], ids=["kill -INT", "Ctrl-C in a terminal"])
def test_ctrl_c_in_a_script_ends_it_and_its_call(group: bool, tmp_path: Path) -> None:
    with start(f'run(deeds.loop_in_python, ("{tmp_path}/mark",), {{}})') as program:
        wait_for(tmp_path / "mark")
        family = psutil.Process(program.pid).children(recursive=True)
        (os.killpg if group else os.kill)(program.pid, signal.SIGINT)
        _, err = program.communicate(timeout=4 * SLACK)

    assert program.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not outlive(family, 1.0)


def test_a_ctrl_c_of_long_ago_ends_no_call_where_lines_are_typed() -> None:
    code = """
    from tfgpu_magic import IsolatedExecutor
    sys.ps1, sys.last_value = ">>> ", KeyboardInterrupt()
    future = IsolatedExecutor(1, gpus=0).submit(time.sleep, 0.5)
    future.add_done_callback(lambda future: print(future.exception(), flush=True))
    """

    assert told(code) == "None\n"


def test_a_script_that_ends_leaves_no_process_and_no_warning() -> None:
    code = """
    import gc
    run(deeds.nothing, (), {})
    for deed in (deeds.fail_counts, deeds.fail_locked, deeds.numbers, deeds.close_output):
        try:
            run(deed, (), {})
        except Exception as error:
            kept = [error, np.zeros(2**20)]
            kept.append(kept)
    del kept
    gc.collect()
    print(FORK_SERVER.process().pid)
    """
    pid = int(told(code, env={"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error"}))

    assert not psutil.pid_exists(pid)


def test_a_caller_that_forks_goes_on_and_so_does_its_child() -> None:
    code = """
    run(deeds.nothing, (), {})
    running = threading.Thread(target=lambda: print(run(deeds.echo, ("before",), {}), flush=True))
    running.start()
    child = os.fork()
    if child == 0:
        print("child", run(deeds.echo, (1,), {}), flush=True)
        sys.exit(0)
    running.join()
    print("parent", run(deeds.echo, (2,), {}), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """

    assert sorted(told(code, env={"PYTHONWARNINGS": "ignore"}).splitlines()) == ["before", "child 1", "parent 2 0"]


def test_a_forked_child_does_not_keep_the_fork_server_alive() -> None:
    code = """
    run(deeds.nothing, (), {})
    child = os.fork()
    if child == 0:
        time.sleep(60)
    server = FORK_SERVER.process().pid
    begin = time.monotonic()
    FORK_SERVER.stop()
    print(Path(f"/proc/{server}").exists(), time.monotonic() - begin < 30)
    os.kill(child, signal.SIGKILL)
    """

    assert told(code) == "False True\n"


def test_a_forked_child_has_no_leases_of_its_parent() -> None:
    code = """
    from tfgpu_magic.policy.policy import NOTHING
    from tfgpu_magic.isolate.leasing import LEASES, LeaseRequest
    with LEASES.lease(LeaseRequest(NOTHING, 1)):
        child = os.fork()
        if child == 0:  # it waits for the GPU as anybody does, until its parent lets go of it
            until = time.monotonic() + 30
            threading.Timer(30, LEASES.stir).start()
            with LEASES.lease(LeaseRequest(NOTHING, 1, lambda: time.monotonic() < until)) as lease:
                print(len(lease.devices), flush=True)
            os._exit(0)
    os.waitpid(child, 0)
    """
    with Machine.create("1x8GiB") as machine:
        assert told(code, env={**machine.environ(os.environ), "PYTHONWARNINGS": "ignore"}) == "1\n"


@pytest.mark.parametrize(
    ("code", "env", "says"),
    [
        (
            """
            out, sys.stdout = sys.stdout, None
            value = run(print, ("heard by nobody",), {})
            print(value, file=out)
            """,
            {},
            "None\n",
        ),
        ("run(print, ('━━ ok',), {})", {"PYTHONIOENCODING": "latin-1"}, "\\u2501\\u2501 ok\n"),
        (
            """
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            print(run(lambda: (signal.pthread_sigmask(signal.SIG_BLOCK, ()), run is None), (), {}))
            """,
            {},
            "(set(), False)\n",
        ),
        ("sys.path += [Path('/there'), None]; print(run(deeds.nothing, (), {}))", {}, "1\n"),
    ],
    ids=["no output", "characters that its output lacks", "blocked signals", "an odd search path"],
)
def test_calls_work_in_a_program_with(code: str, env: dict[str, str], says: str) -> None:
    assert told(code, env=env) == says


def test_a_shared_memory_of_a_megabyte_is_enough() -> None:
    code = """
    array = np.arange(25 * 2**20, dtype=np.float64)
    room = os.statvfs("/dev/shm")
    print(room.f_blocks * room.f_frsize, np.array_equal(run(deeds.echo, (array,), {}), array))
    """
    within = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"', "sh"]

    assert told(code, within=within) == "1048576 True\n"


def test_a_full_disk_is_no_matter_to_a_call_and_its_own_writes_are_told(tmp_path: Path) -> None:
    code = f"""
    os.chdir("{tmp_path}")
    try:
        Path("full").write_bytes(bytes(2**20))
    except OSError:
        pass
    array = np.ones(2**22)
    print(os.statvfs(".").f_bavail, run(deeds.echo, (array,), {{}}).sum() == array.sum())
    try:
        run(deeds.write, ("more", 2**20), {{}})
    except OSError as error:
        print(error.strerror)
    """
    mount = f'mount -t tmpfs -o size=64k tmpfs {tmp_path} && exec "$@"'
    env = {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}

    assert told(code, within=["unshare", "-m", "sh", "-c", mount, "sh"], env=env) == "0 True\nNo space left on device\n"


def test_where_no_process_can_be_started_that_is_told() -> None:
    """As another user than root, which no limit holds; with root's right to read files."""
    code = """
    import resource
    print(run(deeds.nothing, (), {}))
    resource.prlimit(FORK_SERVER.process().pid, resource.RLIMIT_NPROC, (1, 1))
    begin = time.monotonic()
    try:
        run(deeds.nothing, (), {})
    except OSError as error:
        print(error.strerror, time.monotonic() - begin < 30)
    FORK_SERVER.stop()
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    try:
        run(deeds.nothing, (), {})
    except OSError as error:
        print(error.strerror)
    """
    rights = "-all,+dac_override,+dac_read_search"
    within = ["setpriv", "--reuid", "61234", "--clear-groups", "--inh-caps", rights, "--ambient-caps", rights]

    assert told(code, within=[*within, "--"]) == (
        "1\nNo process can be started for the call: Resource temporarily unavailable True\n"
        "Resource temporarily unavailable\n"
    )


def test_thousands_of_arrays_cross_for_a_user_with_few_descriptors() -> None:
    code = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    arrays = [np.full(2**14, n) for n in range(2000)]
    back = run(deeds.echo, (arrays,), {})
    print(all((one == other).all() for one, other in zip(arrays, back)), len(os.listdir("/proc/self/fd")) < 20)
    """
    within = ["setpriv", "--reuid", "61234", "--clear-groups", "--inh-caps", "-all,+dac_override", "--ambient-caps"]

    assert told(code, within=[*within, "-all,+dac_override", "--"]) == "True True\n"


@pytest.mark.usefixtures("light")
def test_the_time_zone_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")

    assert run(lambda: time.localtime().tm_zone, (), {}) == "JST"


def test_priority_and_options_of_the_interpreter_are_the_callers() -> None:
    code = BEGIN + textwrap.dedent("""
    os.nice(3)
    from tests.isolate.test_caller import options
    print(run(options, (), {}), options())
    """)
    asked = ["-O", "-W", "ignore::UserWarning", "-X", "utf8"]
    done = subprocess.run([sys.executable, *asked, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)

    expected = (os.nice(0) + 3, 1, ["ignore::UserWarning"], True)
    assert (done.stdout, done.stderr) == (f"{expected} {expected}\n", "")


def test_what_a_program_inherits_a_call_has_as_it_is_when_it_is_called() -> None:
    code = BEGIN + textwrap.dedent("""
    import resource, subprocess
    from tests.isolate.test_caller import inherited
    run(inherited, (), {})
    os.umask(0o077); os.nice(3); os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
    started = "from tests.isolate.test_caller import inherited; print(inherited())"
    print(run(inherited, (), {}))
    print(subprocess.check_output([sys.executable, "-c", started], text=True), end="")
    """)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    call, program = done.stdout.splitlines()

    assert call == program
    assert "384, 1, " in call  # that is 0o600, on one CPU


def inherited() -> tuple[int, int, int, list[tuple[int, int]]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "file")
        os.close(os.open(file, os.O_CREAT, 0o666))
        mode = file.stat().st_mode & 0o777
    limits = [resource.getrlimit(number) for number in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)]
    return mode, len(os.sched_getaffinity(0)), os.nice(0), limits


def options() -> tuple[int, int, list[str], object]:
    return os.nice(0), sys.flags.optimize, sys.warnoptions, sys._xoptions.get("utf8")


def put(queue: Any, value: object) -> None:
    queue.put(value)


def test_a_call_may_use_what_a_manager_of_its_caller_has_made() -> None:
    code = """
    import multiprocessing
    from tests.isolate.test_caller import put
    with multiprocessing.get_context("spawn").Manager() as manager:
        queue = manager.Queue()
        run(put, (queue, 5), {})
        print(queue.get(timeout=240))
    """

    assert told(code) == "5\n"


SCRIPT = """
    import multiprocessing, sys
    from concurrent.futures import ProcessPoolExecutor
    from tests.isolate.rig import run
    from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER

    FORK_SERVER.preload = ()

    def square(number):
        return number * number

    def squares(way):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(way)) as pool:
            return [*pool.map(square, range(4))]

    if __name__ == "__main__":
        print([run(squares, (way,), {}) for way in ("spawn", "forkserver")])
"""


@pytest.mark.parametrize("by_name", [False, True])
def test_a_call_of_a_script_may_have_pools_of_processes(by_name: bool, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, *(["-m", "script"] if by_name else ["script.py"])],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60 * SLACK,
    )

    assert (done.stdout, done.stderr) == (f"{[[0, 1, 4, 9]] * 2}\n", "")


@contextmanager
def restless() -> Iterator[None]:
    """Have another thread set and remove a variable all the time."""
    over = threading.Event()

    def move() -> None:
        while not over.is_set():
            os.environ["COMES_AND_GOES"] = "1"
            del os.environ["COMES_AND_GOES"]

    thread, before = threading.Thread(target=move), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)


@pytest.mark.usefixtures("light")
def test_an_environment_that_another_thread_changes_is_no_error() -> None:
    with restless():
        for _ in range(5000):
            RUNTIME.environment_for_children()
    assert run(deeds.nothing, (), {}) == 1


def test_where_the_system_does_not_tell_the_umask_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "Name:\tpython\n")
    before = os.umask(0o077)
    try:
        for take_over in inheritance():
            take_over()
    finally:
        after = os.umask(before)

    assert after == 0o077
