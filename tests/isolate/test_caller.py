"""Whatever becomes of the caller, or of its machine: no orphan, no hang; and a call has from it what a child has."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from tests.isolate.rig import run
from tests.processes import runs
from tests.slack import SLACK
from tests.waiting import until
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


def test_a_forked_child_has_no_leases_of_its_parent() -> None:
    code = """
    from tfgpu_magic.policy.policy import NOTHING
    from tfgpu_magic.isolate.leasing import LEASES, LeaseRequest
    with LEASES.lease(LeaseRequest(NOTHING, 1)):
        child = os.fork()
        if child == 0:  # it waits for the GPU as anybody does, until its parent lets go of it
            until = time.monotonic() + 30
            with LEASES.lease(LeaseRequest(NOTHING, 1, lambda: time.monotonic() < until)) as lease:
                print(len(lease.devices), flush=True)
            os._exit(0)
    os.waitpid(child, 0)
    """
    with Machine.create("1x8GiB") as machine:
        assert told(code, env={**machine.environ(os.environ), "PYTHONWARNINGS": "ignore"}) == "1\n"


PROGRAMS = {
    "a Ctrl-C of long ago where lines are typed": (
        """
        from tfgpu_magic import IsolatedExecutor
        sys.ps1, sys.last_value = ">>> ", KeyboardInterrupt()
        future = IsolatedExecutor(1, gpus=0).submit(time.sleep, 0.5)
        future.add_done_callback(lambda future: print(future.exception(), flush=True))
        """,
        "None\n",
    ),
    "a forked child, which does not keep the fork server alive": (
        """
        run(deeds.nothing, (), {})
        child = os.fork()
        if child == 0:
            time.sleep(60)
        server = FORK_SERVER.process().pid
        begin = time.monotonic()
        FORK_SERVER.stop()
        print(Path(f"/proc/{server}").exists(), time.monotonic() - begin < 30)
        os.kill(child, signal.SIGKILL)
        """,
        "False True\n",
    ),
    "no output": (
        """
        out, sys.stdout = sys.stdout, None
        value = run(print, ("heard by nobody",), {})
        print(value, file=out)
        """,
        "None\n",
    ),
    "an output that lacks characters": (
        "sys.stdout.reconfigure(encoding='latin-1'); run(print, ('━━ ok',), {})",
        "\\u2501\\u2501 ok\n",
    ),
    "blocked signals": (
        """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        print(run(lambda: (signal.pthread_sigmask(signal.SIG_BLOCK, ()), run is None), (), {}))
        """,
        "(set(), False)\n",
    ),
    "an odd search path": ("sys.path += [Path('/there'), None]; print(run(deeds.nothing, (), {}))", "1\n"),
    "what a manager of its own has made": (
        """
        import multiprocessing
        with multiprocessing.get_context("spawn").Manager() as manager:
            queue = manager.Queue()
            run(lambda: queue.put(5), (), {})
            print(queue.get(timeout=240))
        """,
        "5\n",
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_calls_work_in_a_program_with(what: str) -> None:
    code, says = PROGRAMS[what]

    assert told(code) == says


def mounted(options: str) -> list[str]:
    """Return how a program is started that has a small file system somewhere."""
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} && exec "$@"', "sh"]


def without_rights(rights: str) -> list[str]:
    """Return how a program is started by another user than root, whom limits hold, with some of root's rights."""
    nobody = ["setpriv", "--reuid", "61234", "--clear-groups"]
    return [*nobody, "--inh-caps", f"-all,{rights}", "--ambient-caps", f"-all,{rights}", "--"]


def test_a_shared_memory_of_a_megabyte_is_enough() -> None:
    code = """
    array = np.arange(25 * 2**20, dtype=np.float64)
    room = os.statvfs("/dev/shm")
    print(room.f_blocks * room.f_frsize, np.array_equal(run(deeds.echo, (array,), {}), array))
    """

    assert told(code, within=mounted("size=1m tmpfs /dev/shm")) == "1048576 True\n"


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
        run(Path("more").write_bytes, (bytes(2**20),), {{}})
    except OSError as error:
        print(error.strerror)
    """
    env = dict.fromkeys(["TMPDIR", "HOME", "XDG_RUNTIME_DIR"], str(tmp_path))

    out = told(code, within=mounted(f"size=64k tmpfs {tmp_path}"), env=env)
    assert out == "0 True\nNo space left on device\n"


def test_where_no_process_can_be_started_that_is_told() -> None:
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

    assert told(code, within=without_rights("+dac_override,+dac_read_search")) == (
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

    assert told(code, within=without_rights("+dac_override")) == "True True\n"


@pytest.mark.usefixtures("light")
def test_the_time_zone_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")

    assert run(lambda: time.localtime().tm_zone, (), {}) == "JST"


def inherited() -> list[object]:
    """Return what a program has from the one that started it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "file")
        os.close(os.open(file, os.O_CREAT, 0o666))
        mode = file.stat().st_mode & 0o777
    limits = [resource.getrlimit(number) for number in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)]
    options = [sys.flags.optimize, sys.warnoptions, sys._xoptions.get("utf8")]
    return [mode, len(os.sched_getaffinity(0)), os.nice(0), limits, options]


def test_what_a_program_inherits_a_call_has_as_it_is_when_it_is_called() -> None:
    options = ["-O", "-W", "ignore::UserWarning", "-X", "utf8"]
    code = BEGIN + textwrap.dedent(f"""
    import resource, subprocess
    from tests.isolate.test_caller import inherited
    run(inherited, (), {{}})
    os.umask(0o077); os.nice(3); os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
    started = "from tests.isolate.test_caller import inherited; print(inherited())"
    print(run(inherited, (), {{}}))
    print(subprocess.check_output([sys.executable, *{options}, "-c", started], text=True), end="")
    """)
    done = subprocess.run([sys.executable, *options, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    call, program = done.stdout.splitlines()

    assert call == program
    assert call.startswith("[384, 1, ")  # that is 0o600, on one CPU
    assert call.endswith(", [1, ['ignore::UserWarning'], True]]")
    assert done.stderr == ""


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


@pytest.mark.parametrize("how", [["script.py"], ["-m", "script"]])
def test_a_call_of_a_script_may_have_pools_of_processes(how: list[str], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *how]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60 * SLACK)

    assert (done.stdout, done.stderr) == (f"{[[0, 1, 4, 9]] * 2}\n", "")
