"""A call's process has from its caller what a child of the caller's has, though it is another's child."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.isolate import deeds
from tests.isolate.rig import run
from tests.isolate.test_caller import BEGIN, ROOT, told
from tfgpu_magic.config.runtime import RUNTIME

pytestmark = pytest.mark.usefixtures("light")


def surroundings(path: Path) -> tuple[int, str, tuple[int, int], set[int]]:
    path.touch()
    limits, processors = resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0)
    return path.stat().st_mode & 0o777, time.localtime().tm_zone, limits, processors


def test_modes_of_files_time_zone_limits_and_processors_are_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask, (soft, hard), processors = (
        os.umask(0o077),
        resource.getrlimit(resource.RLIMIT_NOFILE),
        os.sched_getaffinity(0),
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    os.sched_setaffinity(0, {min(processors)})
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    try:
        assert run(surroundings, (tmp_path / "file",), {}) == (0o600, "JST", (soft - 1, hard), {min(processors)})
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.sched_setaffinity(0, processors)


def test_priority_and_options_of_the_interpreter_are_the_callers() -> None:
    code = BEGIN + textwrap.dedent("""
    os.nice(3)
    from tests.isolate.test_inherited import options
    print(run(options, (), {}), options())
    """)
    asked = ["-O", "-W", "ignore::UserWarning", "-X", "utf8"]
    done = subprocess.run([sys.executable, *asked, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)

    expected = (os.nice(0) + 3, 1, ["ignore::UserWarning"], True)
    assert (done.stdout, done.stderr) == (f"{expected} {expected}\n", "")


def options() -> tuple[int, int, list[str], object]:
    return os.nice(0), sys.flags.optimize, sys.warnoptions, sys._xoptions.get("utf8")


def put(queue: Any, value: object) -> None:
    queue.put(value)


def test_a_call_may_use_what_a_manager_of_its_caller_has_made() -> None:
    code = """
    import multiprocessing
    from tests.isolate.test_inherited import put
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
    from tfgpu_magic.isolate.pool import FORK_SERVER

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
        timeout=60,
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


def test_an_environment_that_another_thread_changes_is_no_error() -> None:
    with restless():
        for _ in range(5000):
            RUNTIME.environment_for_children()
    assert run(deeds.nothing, (), {}) == 1
