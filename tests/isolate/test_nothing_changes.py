"""A notebook before and after forty isolated cells, calls, jobs and failures: only what was asked for changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.isolate.notebook import HANG, LIGHT, Notebook

SETUP = """
import enum, os, sys, threading
from tfgpu_magic import IsolatedExecutor, isolated

factor, best = 1, 0.99
config, history = {"lr": 1}, [1, 2, 3]
lock = threading.Lock()

class CFG:
    lr = 1e-3

class Foo:
    count = 0
    def f(self):
        return factor
    @classmethod
    def made(cls):
        return cls()

class Colour(enum.Enum):
    RED = 1
    def paint(self):
        return factor

class Diverged(Exception):
    def told(self):
        return best, config, history

foo = Foo()

def helper(x):
    return x * factor

@isolated
def change(one):
    global factor, best
    factor, best = 5, -1
    type(one).count += 7
    type(one).f = lambda self: "there"
    CFG.lr = 7
    history.clear()
    return one, Colour.RED

@isolated
def fail(one):
    global best, history
    best, history = -1, []
    type(one).count += 7
    raise Diverged("in a call")

@isolated
def new():
    class Bar(Foo):
        size = 3
        def g(self):
            return self.size, factor
    return Bar()

class OnlyThere:
    def __init__(self, home):
        self.home = home
    def __setstate__(self, state):
        self.__dict__.update(state)
        if os.getpid() == self.home:
            raise ValueError("not here")
"""

PICTURE = """
import copyreg
_kinds = CFG, Foo, Colour, Diverged, OnlyThere
for _kind in _kinds:
    copyreg._slotnames(_kind)  # a note that Python's pickle leaves in any class whose instance it has pickled
def _picture():
    names = [name for name in globals() if not name.startswith("_") and name not in ("In", "Out")]
    return (
        {kind: dict(vars(kind)) for kind in _kinds},
        {name: globals()[name] for name in names if name not in ASKED},
        repr((factor, best, config, history)),
        (sorted(os.listdir()), dict(os.environ), list(sys.path), os.getcwd(), os.umask(os.umask(0o22))),
    )
ASKED = set()
_before = _picture()
def _differs():
    now, found = _picture(), []
    for kind, was in _before[0].items():
        names = was.keys() | now[0][kind].keys()
        found += [f"{kind.__name__}.{name}" for name in names if now[0][kind].get(name) is not was.get(name)]
    found += [n for n in now[1].keys() | _before[1].keys() if now[1].get(n) is not _before[1].get(n, now[1])]
    found += ["values"] * (now[2] != _before[2]) + ["files"] * (now[3] != _before[3])
    found += ["globals"] * any(f.__globals__ is not globals() for f in (Foo.f, Foo.made, Diverged.told))
    return found
"""

DEED = """
factor, best = 2, -1
Foo.count += 7
Foo.f = lambda self: "there"
CFG.lr = 5
config["lr"] = 999
history.append(4)
import os
os.environ["TFGPU_TEST_DEED"] = "there"
os.chdir("/")
"""

CELLS = [
    ("-o out_q,out_c", f"{DEED}\nout_q, out_c = Foo(), Colour.RED\nfoo"),
    ("-o out_k", f"{DEED}\nclass out_k(Foo): pass\nout_k()"),
    ("-o Foo", f"{DEED}\nFoo"),
    ("-o out_h", f"{DEED}\nout_h = helper"),
    ("", f"{DEED}\nraise Diverged(lambda: (best, config, history))"),
    ("-o out_l", f"{DEED}\nerror = Diverged('with a lock')\nerror.lock = threading.Lock()\nout_l = [1]\nraise error"),
    ("", f"{DEED}\nraise ValueError(lambda: history)"),
    ("-o out_t,out_u", f"{DEED}\nout_t, out_u = OnlyThere(home), Foo()\nfoo"),
    ("-o out_v", f"{DEED}\nout_v = threading.Lock()\nFoo()"),
    ("--timeout 300ms -o out_w", f"{DEED}\nout_w = Foo()\nwhile True: pass"),
    ("", f"{DEED}\nos._exit(3)"),
]


@pytest.fixture(scope="module")
def book(warm: Notebook) -> Iterator[Notebook]:
    with Notebook(warm.server, LIGHT) as one:
        one.isolated("pass")  # which warms
        one.run(SETUP)
        one.run("home = os.getpid()")
        one.run(PICTURE)
        one.run("ASKED.update('out_' + letter for letter in 'qckhltuvw')")
        yield one


def test_forty_cells_calls_jobs_and_failures_change_nothing_that_was_not_asked_for(book: Notebook) -> None:
    assert book.run("_differs()").value == "[]"
    for line, body in CELLS:
        for detach in ("", "--detach "):
            ran = book.isolated(body, detach + line)
            if detach:
                book.run("_.exception()")
            assert book.run("_differs()").value == "[]", (detach, line, body, ran.text)
    for call in (
        "_a = change(foo); assert type(_a[0]) is Foo and _a[1] is Colour.RED and _a[0].f() == _a[1].paint() == 1",
        "_b = change.submit(foo).result(); assert type(_b[0]) is Foo",
        "fail(foo)",
        "_d = fail.submit(foo).exception(); assert type(_d) is Diverged and _d.told() == (best, config, history)",
        "_e = isolated(lambda: (Foo(), OnlyThere(home)))()",
        "_f = isolated(lambda: lock)()",
        "_g = isolated(lambda: Foo.made())(); assert type(_g) is Foo",
        "with IsolatedExecutor(max_workers=2) as _x:\n    _h = list(_x.map(change.__wrapped__, [foo] * 4))",
        "with IsolatedExecutor(max_workers=2) as _x:\n    _i = [_x.submit(fail.__wrapped__, foo).exception()] * 2",
        "_k = new(); assert _k.g() == (3, 1) and isinstance(_k, Foo)",
        "type(_k).size = 5; _l = isolated(lambda one: one)(_k); assert type(_l) is type(_k) and _l.g() == (5, 1)",
        "_j = isolated(timeout='300ms')(lambda: [Foo() for _ in iter(int, 1)])()",
    ):
        ran = book.run(call)
        assert ran.error.get("ename") not in ("AssertionError", "NameError"), ran.text
        assert book.run("_differs()").value == "[]", (call, ran.text)


@pytest.mark.parametrize("heeded", [True, False])
def test_interrupted_cells_change_nothing(book: Notebook, heeded: bool) -> None:
    loop = "while True: pass" if heeded else HANG
    with book.interrupted(book.calls):
        book.isolated(f"{DEED}\nout_q = Foo()\n{loop}", "-o out_q")

    assert book.run("_differs()").value == "[]"
