"""`@isolated` over the simulated machine: each call a process, from modules, scripts and notebooks alike."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pytest

import tfgpu_magic
from tests.isolate import functions as f
from tests.processes import QUIET
from tests.slack import SLACK
from tfgpu_magic import TimedOut, isolated
from tfgpu_magic.simgpu import Machine


@pytest.mark.usefixtures("quick")
class TestWithoutAGpu:
    def test_a_call_returns_what_the_function_returns(self) -> None:
        assert f.double(21) == 42

    def test_a_call_within_a_call_is_an_ordinary_one_and_a_submitted_one_has_a_process_of_its_own(self) -> None:
        number, processes = f.fibonacci(10)
        outer, called, submitted = f.parallel()

        assert number == 55
        assert len(processes) == 1
        assert called == outer
        assert submitted != outer
        assert not psutil.pid_exists(submitted)

    def test_a_module_is_imported_and_not_copied(self) -> None:
        assert [f.counted(), f.counted(), f.counted.submit().result()] == [1, 1, 1]
        assert f.count == 0

    def test_methods_are_bound_to_an_instance_that_travels(self) -> None:
        trainer = f.Trainer(2)
        trained = [trainer.train(3), trainer.train.submit(4).result(), f.Trainer.train(trainer, 5)]
        named: Any = f.Trainer.named  # mypy binds only functions to classes

        assert [value for value, _ in trained] == [60, 80, 100]
        assert os.getpid() not in {pid for _, pid in trained}
        assert trainer.factor == 2  # the copies changed, and this did not
        assert trainer.train.__wrapped__(1) == (20, os.getpid())
        assert (f.Trainer.still.submit(7).result(), named(8)) == (7, "Trainer 8")

    def test_nested_functions_and_lambdas_are_isolated_too(self) -> None:
        more = 5

        @isolated
        def nested(number: int) -> int:
            return number + more if number else nested(1) * 100

        add: Callable[[int], int] = isolated(lambda number: number + more)

        assert [nested(1), nested(0), nested.submit(2).result(), add(3)] == [6, 600, 7, 8]

    def test_a_call_that_takes_too_long_is_ended(self) -> None:
        with pytest.raises(TimedOut, match=r"longer than 0\.3 s"):
            isolated(timeout="300ms")(time.sleep)(60)


def test_it_keeps_the_functions_name_signature_and_types() -> None:
    assert (f.double.__name__, f.double.__doc__) == ("double", "Return twice as much.")  # type: ignore[attr-defined]
    assert str(inspect.signature(f.double)) == "(number: 'int', *, times: 'int' = 1) -> 'int'"
    assert pickle.loads(pickle.dumps(f.double)) is f.double
    assert pickle.loads(pickle.dumps(f.Trainer.train)) is f.Trainer.train
    assert repr(f.double).startswith("<isolated <function double")


def _types() -> None:
    """For mypy, which fails where one of these is not as it says."""
    number: int = f.double(1, times=2)
    future: Future[int] = f.double.submit(1)
    pair: tuple[int, int] = f.Trainer(1).train(2)
    pairs: Future[tuple[int, int]] = f.Trainer(1).train.submit(2)
    f.double("1")  # type: ignore[arg-type]
    f.double.submit(1, time=2)  # type: ignore[call-arg]
    f.Trainer(1).train("2")  # type: ignore[arg-type]
    del number, future, pair, pairs


def test_what_makes_no_sense_is_an_error_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="a int cannot"):
        isolated(3)  # type: ignore[call-overload]


PROGRAM = """
import os
import tfgpu_magic

FACTOR = 3

def held(pid):
    from tfgpu_magic.simgpu import Machine
    return Machine.current().held(pid=pid)

class Point:
    def __init__(self, x):
        self.x = x
    @tfgpu_magic.isolated
    def grown(self, by=1):
        return Point(self.x + by)

@tfgpu_magic.isolated(policy="limit 512MiB")
def train(steps):
    import tensorflow as tf
    tf.zeros(1000)
    return steps * FACTOR, held(os.getpid()) // 2**20, os.getpid() != HERE

@tfgpu_magic.isolated
def factorial(n):
    return n * factorial(n - 1) if n else 1

class Mine(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")
        self.code = code

@tfgpu_magic.isolated
def fail():
    raise Mine(code=7)

@tfgpu_magic.isolated
def rate():
    return RATE

HERE = os.getpid()
print(train(2), [future.result() for future in [train.submit(3), train.submit(4)]])
print(factorial(5), Point(1).grown().x, Point(1).grown.submit(by=2).result().x, isinstance(Point(1).grown(), Point))
print(held(HERE), __name__)
try:
    fail()
except Mine as error:
    print("mine", error.code, error)
futures = []
for RATE in (1, 2, 3):  # those that wait have what it is now
    futures.append(rate.submit())
print(*(future.result() for future in futures))
"""
SAYS = "(6, 768, True) [(9, 768, True), (12, 768, True)]\n120 2 3 True\n0 __main__\nmine 7 code 7\n1 2 3\n"
IN_A_SHELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell({program!r}).raise_error()
shell.history_manager.end_session()
"""


@pytest.mark.parametrize("where", ["script", "shell"])
def test_it_works_in_scripts_as_in_notebooks(tmp_path: Path, where: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM if where == "script" else IN_A_SHELL.format(program=PROGRAM))
    with Machine.create("1x8GiB") as machine:
        env = {**QUIET, "IPYTHONDIR": str(tmp_path)}
        done = machine.run([sys.executable, script], env=env, capture_output=True, text=True, timeout=240)

        assert (done.stdout, done.stderr) == (SAYS, "")
        assert machine.held() == 0


def test_the_main_module_of_a_package_may_import_relatively_in_its_functions(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("answer = 42\n")
    (package / "__main__.py").write_text(
        "from tfgpu_magic import isolated\nfrom tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER\n\n"
        "FORK_SERVER.preload = ()\n\n@isolated\ndef ask():\n    from .part import answer\n    return answer\n\n"
        "print(ask())\n"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(tfgpu_magic.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-m", "pkg"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100 * SLACK,
    )

    assert (done.stdout, done.stderr) == ("42\n", "")
