"""Nothing at home changes by what comes back: classes are as they were, and no variable is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])

BEGIN = """
import enum
from tfgpu_magic.errors import Raised
from tfgpu_magic.isolate.pool import FORK_SERVER
from tests.isolate.rig import run

factor, history, config = 1, [1, 2, 3], {"lr": 1}

class Foo:
    count = 0
    def f(self):
        return factor

class Colour(enum.Enum):
    RED = 1
    def paint(self):
        return factor

class Diverged(Exception):
    def told(self):
        return config, history

def change():
    global factor
    factor = 2
    Foo.count += 7
    Foo.more = "there"
    Foo.f = lambda self: "there"
    return Foo(), Colour.RED

def fail(kind):
    global config, history
    config, history = {"lr": 999}, []
    raise kind("here")

def fail_with_a_function():
    global history
    history = []
    raise ValueError(lambda: history)

def fail_oddly():
    global history
    history = []
    error = Diverged("here")
    error.lock = __import__("threading").Lock()
    error.read = lambda: history
    raise error

def new():
    class Bar(Foo):
        size = 3
        def g(self):
            return self.size, factor
    return Bar()

def raised(function, *arguments):
    try:
        run(function, arguments, {})
    except Exception as error:
        return error

FORK_SERVER.preload = ()
classes = Foo, Colour, Diverged
before = [dict(vars(one)) for one in classes]

def same():
    for one, was in zip(classes, before):
        assert vars(one).keys() == was.keys(), (one, vars(one).keys() ^ was.keys())
        for name, part in was.items():
            assert vars(one)[name] is part, (one, name)
    assert Foo.f.__globals__ is globals()
    assert (factor, history, config) == (1, [1, 2, 3], {"lr": 1}), (factor, history, config)
"""


def in_a_script(tmp_path: Path, body: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"{BEGIN}\nif __name__ == '__main__':\n    " + body.strip().replace("\n", "\n    ") + "\n")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": ROOT}, timeout=60
    )

    assert done.returncode == 0, done.stderr


def test_a_class_is_as_it_was_when_its_instance_comes_back(tmp_path: Path) -> None:
    in_a_script(
        tmp_path,
        """
foo, red = run(change, (), {})
same()
assert type(foo) is Foo and red is Colour.RED and foo.f() == 1
assert red.paint() == 1
""",
    )


def test_an_exception_that_comes_back_writes_no_variable_and_no_class(tmp_path: Path) -> None:
    in_a_script(
        tmp_path,
        """
error = raised(fail, Diverged)
assert type(error) is Diverged and str(error) == "here"
same()
assert error.told() == (config, history) == ({"lr": 1}, [1, 2, 3])
assert type(raised(fail_with_a_function)) is ValueError
same()
error = raised(fail_oddly)
assert type(error) is Diverged and error.read() == []
same()
""",
    )


def test_a_class_that_is_new_here_comes_whole_and_stays_the_same(tmp_path: Path) -> None:
    in_a_script(
        tmp_path,
        """
bar = run(new, (), {})
assert bar.g() == (3, 1) and isinstance(bar, Foo)
same()
type(bar).size = 5
again = run(lambda one: one, (bar,), {})
assert type(again) is type(bar) and again.g() == (5, 1)
""",
    )
