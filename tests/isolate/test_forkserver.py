"""The process that starts calls imports what its caller would, as things are now; and it says what it dies of."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.isolate import deeds
from tests.isolate.rig import beside, call, prepare, run, soon
from tests.isolate.test_caller import told
from tests.processes import runs
from tests.waiting import until
from tfgpu_magic.errors import WorkerDied
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER
from tfgpu_magic.policy.process_state import VARIABLES

pytestmark = pytest.mark.usefixtures("light")


AT_AN_IMPORT = ("HDF5_USE_FILE_LOCKING", "KERAS_MAX_EPOCHS", "TF_JIT_COMPILE_REWRITE", "HOME")


@pytest.mark.parametrize("name", [*AT_AN_IMPORT, *VARIABLES, "HDF5_PLUGIN_PATH", "KMP_INIT_AT_FORK", "ANYTHING"])
def test_only_a_variable_that_counts_at_an_import_gets_a_new_fork_server(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = FORK_SERVER.process()
    monkeypatch.setenv(name, "1")

    assert name not in AT_AN_IMPORT or run(os.getenv, (name,), {}) == "1"
    assert (FORK_SERVER.process() is before) == (name not in AT_AN_IMPORT)


def test_a_package_that_is_installed_anew_is_imported_anew(tmp_path: Path) -> None:
    code = f"""
    import tests
    sys.path.insert(0, "{tmp_path}")
    def version():
        import keras
        return keras.VERSION
    package = Path("{tmp_path}/keras/__init__.py")
    package.parent.mkdir()
    FORK_SERVER.preload = ("keras",)
    for number in range(2):
        package.with_name("new").write_text(f"VERSION = {{number}} + 10")
        package.with_name("new").replace(package)
        print(run(version, (), {{}}), FORK_SERVER.process() is FORK_SERVER.process())
    """

    assert told(code, env={"PYTHONDONTWRITEBYTECODE": "1"}) == "10 True\n11 True\n"


def test_a_file_beside_the_notebook_does_not_stand_for_a_module_of_pythons(tmp_path: Path) -> None:
    for name in ("select", "selectors", "struct", "random"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')")
    (tmp_path / "mine.py").write_text("VALUE = 5")
    code = f"""
    import random, selectors, struct
    os.chdir("{tmp_path}")
    sys.path[:0] = ["", "{tmp_path}"]
    def value():
        import mine, select
        return mine.VALUE, hasattr(select, "epoll")
    print(run(value, (), {{}}))
    """

    assert told(code) == "(5, True)\n"


def test_a_fork_server_that_fails_says_why(tmp_path: Path) -> None:
    code = f"""
    Path("{tmp_path}/cloudpickle").mkdir()
    Path("{tmp_path}/cloudpickle/__init__.py").write_text("raise RuntimeError('an odd cloudpickle')")
    sys.path.insert(0, "{tmp_path}")
    try:
        run(deeds.nothing, (), {{}})
    except WorkerDied as error:
        print(error)
    """
    first, *said = told(code).splitlines()

    assert first == "The process that starts isolated calls has died (exit status 1). The next call gets a new one."
    assert said[0] == "It said:"
    assert said[-1] == "RuntimeError: an odd cloudpickle"
    assert len(said) <= 6


def test_a_search_path_of_any_length_goes_along_and_is_seen_by_nobody() -> None:
    code = """
    sys.path += [f"/secret/{n:04}/" + 200 * "x" for n in range(3000)]
    print(run(lambda: (len(sys.path), "ä" in sys.path), (), {}) == (len(sys.path), False))
    print("secret" in Path(f"/proc/{FORK_SERVER.process().pid}/cmdline").read_text())
    """

    assert told(code) == "True\nFalse\n"


def test_when_a_fork_server_has_died_only_what_was_its_own_is_killed() -> None:
    """The number of a call's group may be another's, when nothing of it lives."""
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    server = FORK_SERVER.process()
    process = server.start()
    process.read_status()
    os.kill(server.pid, signal.SIGKILL)
    process.pid = stranger.pid
    process.read_status()
    process.close()
    FORK_SERVER.stop()

    assert process.orphaned
    assert process.server.exit_status() == -signal.SIGKILL
    with pytest.raises(subprocess.TimeoutExpired):  # it lives
        stranger.wait(0.5)
    stranger.kill()
    stranger.wait()


def test_a_fork_server_that_takes_long_to_end_leaves_no_zombie() -> None:
    server = FORK_SERVER.process()
    process = psutil.Process(server.pid)
    process.suspend()
    FORK_SERVER.stop()
    process.resume()
    del server
    gc.collect()  # of what still runs and nobody waits for, Python would warn here

    until(lambda: not process.is_running())


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return runs(psutil.Process(pid))
    return False


def test_a_fork_server_that_is_killed_takes_its_calls_along_and_the_next_call_works(tmp_path: Path) -> None:
    done = tmp_path / "done"
    server = FORK_SERVER.process().pid
    with (
        soon(done, lambda: os.kill(server, signal.SIGKILL)),
        pytest.raises(WorkerDied, match=r"that starts isolated calls has died \(SIGKILL, killed\), and this call"),
    ):
        run(deeds.leave_processes_and_loop, (str(tmp_path / "mark"), str(done)), {})
    loop, plain, apart, daemon = map(int, done.read_text().split())
    until(lambda: not (lives(loop) or lives(plain)))
    for pid in filter(lives, (apart, daemon)):  # what has cut itself off from its group is beyond our reach then
        os.kill(pid, signal.SIGKILL)

    assert run(deeds.nothing, (), {}) == 1


def test_an_interrupt_while_it_becomes_warm_ends_the_wait(tmp_path: Path) -> None:
    FORK_SERVER.stop()
    FORK_SERVER.preload, before = ("tests.isolate.slow", *FORK_SERVER.preload), FORK_SERVER.preload
    try:
        one, _ = call(deeds.loop_in_python)
        one.warming = one.interrupt
        with pytest.raises(KeyboardInterrupt):
            one.run_process(prepare())
        assert run(deeds.nothing, (), {}) == 1
    finally:
        FORK_SERVER.preload = before
        FORK_SERVER.stop()


def test_a_variable_that_counts_at_tensorflows_import_gets_a_new_fork_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, old = FORK_SERVER.process(), FORK_SERVER.process().pid
    with beside(tmp_path / "go") as (other,):
        monkeypatch.setenv("KERAS_BACKEND", "numpy")

        assert run(os.getenv, ("KERAS_BACKEND",), {}) == "numpy"
        assert FORK_SERVER.process() is not one
        assert other.is_alive()
    until(lambda: not psutil.pid_exists(old))
