"""Which names a cell reads: cells as people type them, and what else is true of every cell."""

from __future__ import annotations

import builtins
import importlib
import inspect
import itertools
import symtable
import sys
import textwrap
from collections.abc import Iterator
from random import Random
from types import CodeType, FrameType
from typing import Any

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from tfgpu_magic.isolate.cells.names import Names, global_names, unbound

NOTEBOOK = frozenset({"a", "b", "c", "f", "m", "np", "p", "x", "y", "z"})
"""What the notebook has, for the rows below."""


def told(cell: str) -> Names:
    return global_names(TransformerManager().transform_cell(cell))  # type: ignore[no-untyped-call]


def since(version: tuple[int, int], *rows: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return rows whose cells are syntax errors before a Python version."""
    return rows if sys.version_info >= version else ()


STATEMENTS = [
    ("", ""),
    ("x = 1\nprint(x)", ""),
    ("print(x)\nx = 1", "x"),
    ("x = x + 1", "x"),
    ("x += 1", "x"),
    ("x[0] = 1", "x"),
    ("x.a = y", "x y"),
    ("x.a += 1", "x"),
    ("a, (b, *c), p.q = y", "p y"),
    ("a = b = x", "x"),
    ("x: int = 1; x", ""),
    ("x: int\nx", "x"),
    ("x: y = 1", "y"),
    ("del x", "x"),
    ("x = 1\ndel x\nx", ""),
    ("x = 1\nif a: del x", "a"),
    ("x = 1\ndel x\nx = 2", ""),
    ("x", "x"),
    ("x;", "x"),
    ("def g(): return new_name", ""),
    ("y = {**a, b: c}", "a b c"),
    ("assert a, b", "a b"),
    ("print(f'{x:{y}} {z!r} {{a}}')", "x y z"),
    *since((3, 14), ("print(t'{x:{y}} {z!r} {{a}}')", "x y z")),
    ("(x := a) + x", "a x"),
    ("x + (x := 1)", "x"),
    ("await x", "x"),
    ("global x\nx = 1", ""),
]

WAITING = [("[x async for x in a]", "a"), ("{x: await y for x in a}", "a y")]
"""Not among those that cells are made of at random: such a cell went on for ever on Python 3.10."""

BRANCHES = [  # whatever is named anywhere in one counts as read
    ("if a: x = 1\nx", "a x"),
    ("if a and (x := b): x\nx", "a b x"),
    ("y = (x := 1) if a else (x := 2)\nx", "a x"),
    ("for x in a: x\nx", "a x"),
    ("for x in a:\n  if b: break\nelse: z = 1\nz", "a b z"),
    ("for c in a:\n  x\n  x = 1", "a x"),
    ("for x[0] in a: pass", "a x"),
    ("async for x in a: x", "a x"),
    ("while (x := a()): y = 1\nx, y", "a x y"),
    ("while True:\n  x = 1\n  if a: break\nx", "a x"),
    ("raise a\nx", "a x"),
    ("try: x = a\nexcept E: x = 1\nx", "a x"),
    ("try: x = 1\nfinally: x", "x"),
    ("try: a\nexcept E as x: x", "a x"),
    *since((3, 11), ("try: x = a\nexcept* E as y: x = y\nx", "a x y")),
    ("with a as x, b(x) as y: x\ny", "a b"),
    ("with a.scope(): x = b\nx", "a b"),
    ("with a.suppress(b): x = 1\nx", "a b x"),
    ("with a: raise b\nx", "a b x"),
    ("async with a as x: x", "a"),
    ("match a:\n  case [x, *y]: x, y\n  case {'k': z, **p}: z, p\nx", "a p x y z"),
    ("match a:\n  case f(b, k=c.d): b\n  case y.z: 1", "a b c f y"),
    ("match a:\n  case 1: x = 1\n  case _: x = 2\nx", "a x"),
    ("match a:\n  case 1 | 2 as x if b: x\n  case y: y", "a b x y"),
]

SCOPES = [
    ("def g(a, b=x, *c, d: y = z) -> np: return a, b, c, m", "m np x y z"),
    ("def g():\n  x = 1\n  def h(): return x\n  return h", ""),
    ("x = 1\ndef g(): return x", ""),
    ("def g(): return x\nx = 1", "x"),
    ("def g():\n  global x\n  x = a", "a"),
    ("def g():\n  global x\n  x = 1\ndel x\ng()", "x"),
    ("def g():\n  global x\n  x += 1", "x"),
    ("def g():\n  global x\n  import x", ""),
    ("def g():\n  global x\n  x = 1\ng()\nx", "x"),
    ("def g():\n  x = 1\n  def h():\n    nonlocal x\n    x = y", "y"),
    ("def x(): return x()", "x"),
    ("@a(b)\ndef g(): pass", "a b"),
    ("async def g(): return await x", "x"),
    ("g = lambda a, b=x: a + b + y", "x y"),
    ("def g():\n  class A: x = x", "x"),
    ("class A(a, k=b):\n  x = 1\n  y = x\n  def g(self): return x", "a b x"),
    ("class A: x = x", "x"),
    ("class A:\n  x = 1\n  z = [x for c in a]", "a x"),
    ("class A:\n  a = 1\n  z = [c for c in a]", "a"),
    ("class A:\n  x = 1\n  class B: y = x", "x"),
    ("class A:\n  global x\n  x = 1\n  x", "x"),
    ("class A:\n  x = 1\n  del x\n  x", "x"),
    ("class A: x = 1\nx", "x"),
    ("x = 1\nclass A: y = x", ""),
    ("[x for x in x]", "x"),
    ("[x + y for x in a if b]", "a b y"),
    ("{x: y for x, y in a}, {x for x in a}, (x for x in a)", "a"),
    ("[x for x in a for a in x]", "a"),
    ("[lambda: x for x in a]", "a"),
    ("[(y := x) for x in a]\ny", "a y"),
    ("[y for y in [x async for x in a]]", "a"),
    ("import np, a.b, c as y\nnp, a, y", ""),
    ("from a import b as x\nx", ""),
    ("from . import a\na", ""),
    ("from a import *\nx", "x"),
    ("try: import x\nexcept ImportError: x = None\nx", "x"),
    *since((3, 12), ("def g[T: a](x: T) -> T: return T, y", "a y")),
    *since((3, 12), ("class A[x](b[x]):\n  def g(self): return x", "b")),
    *since((3, 12), ("type x[y] = list[y, z]", "z")),
]

MAGICS = [
    ("!ls $x {y + z} $a.b $$c", "a x y z"),
    ("!ls {f'{x}'} {{y}}", ""),
    ("!ls {a[0:b]} {c!r}", "a b c"),
    ("!ls '$x'", ""),
    ("!awk '{print $1}' $x", ""),
    ("y = !ls $x", "x"),
    ("!!ls $x", "x"),
    ("x = 1\n!ls $x", ""),
    ("y = %env $x", "x"),
    ("%cd {x}", "x"),
    ("x?", "x"),
    ("%time x = f(y)\nx", "f y"),
    ("z = %timeit -o -n 10 -r3 x = f(y); x", "f y"),
    ("%prun -l 10 -s cumulative x = f(y)", "f y"),
    ("for a in b:\n    %time x = f(a)\nx", "a b f x"),
    ("def g(a):\n    !ls $a $x\n    %time b = f(a)", "a f x"),
    ("%%time\nx = f(y)\n!ls $z", "f y z"),
    ("%%timeit -n 10 x = a\ny = f(x)", "a f"),
    ("%%timeit\nx = x + y", "y"),
    ("%%capture --no-stderr a\nx = y", "y"),
    ("%%prun -q\nx = y", "y"),
    ("%%bash -s $x\necho $y {z}", "x"),
    ("%%writefile {x}\ny = z", "x"),
    ("%%sql $x\nselect {y}", "x y"),
    ("%%time\nx = = y", ""),
    ("get_ipython().run_line_magic(x, y)", "x y"),
]


@pytest.mark.parametrize(("cell", "reads"), [*STATEMENTS, *BRANCHES, *WAITING, *SCOPES, *MAGICS])
def test_what_a_cell_reads_of_the_notebook(cell: str, reads: str) -> None:
    assert sorted(told(cell).reads & NOTEBOOK) == sorted(reads.split())


@pytest.mark.parametrize(
    ("cell", "passing"),
    [
        ("import np, a.b, c as y", {"np", "a", "y"}),
        ("from a import b, c as x", {"b", "x"}),
        ("from a import *", set()),
        ("import np\nnp = 1", set()),
        ("%%time\nimport np", {"np"}),
        ("for i, (a, *b) in x: pass", {"i", "a", "b"}),
        ("for i in x: y = i", {"i"}),
        ("i = 0\nfor i in x: pass", set()),
        ("with open(x) as i: pass", set()),
    ],
)
def test_passing_names_are_those_that_only_imports_and_loops_bind(cell: str, passing: set[str]) -> None:
    assert told(cell).passing == passing


@pytest.mark.parametrize(
    ("cell", "surely"),
    [
        ("x", {"x"}),
        ("with a: x", {"a", "x"}),
        ("if a: x", set()),
        ("def g(): return x", set()),
        ("if a: x = 1\nx", set()),
        ("x = x + y", {"y"}),
        ("try: a\nexcept E as x: pass\nx", set()),
        ("match a:\n  case [x, *y]: pass\nx, y", set()),
    ],
)
def test_what_a_cell_surely_reads_it_reads_in_no_branch_and_binds_nowhere(cell: str, surely: set[str]) -> None:
    assert told(cell).surely == surely


@pytest.mark.parametrize("cell", ["x = = 1", "return x", "break", "x = 1\n  y", "x\0", "def f(a, a): x", "%%time x"])
def test_what_does_not_compile_has_no_names(cell: str) -> None:
    assert global_names(cell) == Names()


def test_builtins_are_reads_and_ipython_is_none() -> None:
    assert told("print(__name__)\n%time sum(x)").reads == {"print", "__name__", "sum", "x"}


def test_what_python_warns_of_is_left_to_the_run() -> None:
    assert global_names("x = '\\d'; 1 is 1; y").reads == {"y"}


@pytest.mark.parametrize("module", ["argparse", "asyncio.base_events", "fractions", "json.decoder"])
def test_a_module_reads_nothing_but_builtins_and_what_it_binds_itself(module: str) -> None:
    source = inspect.getsource(importlib.import_module(module))
    table = symtable.symtable(source, "<module>", "exec")
    scopes = [table, *(inner for inner in table.get_children() if inner.get_type() == "class")]
    own = {symbol.get_name() for scope in scopes for symbol in scope.get_symbols() if symbol.is_assigned()}
    own |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_imported() or symbol.is_namespace()}

    assert global_names(source).reads - own <= set(vars(builtins))


def test_an_expression_too_deep_to_walk_reads_every_word_in_it() -> None:
    assert {"x", "y"} <= global_names("x" + " + y" * 5000).reads


@pytest.mark.parametrize(
    "cell", ["df.query('a > @cutoff')", "def f():\n df.query('a > @cutoff')", "df.query(f'a > @cutoff + {df.b}')"]
)
def test_names_in_a_query_are_read(cell: str) -> None:
    assert global_names(cell).reads == {"df", "cutoff"}


# Random cells of these rows, run with all of the notebook and with only what they read of it: both come to the same.


class Thing:
    """A value that nearly everything can be done with, so that few cells stop early; `number` tells what was done."""

    def __init__(self, number: int) -> None:
        self.number = number % 97

    def __call__(self, *args: object) -> Thing:
        return Thing(self.number + 5 + len(args))

    def __add__(self, other: object) -> Thing:
        return Thing(self.number * 3 + len(shown(other)))

    __radd__ = __add__

    def __getattr__(self, name: str) -> Thing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing(self.number + len(name))

    def __getitem__(self, key: object) -> Thing:
        return Thing(self.number + 1)

    def __setitem__(self, key: object, value: object) -> None:
        self.number += 1

    def __iter__(self) -> Iterator[Thing]:
        return iter([Thing(self.number + turn) for turn in range(self.number % 4)])

    def __enter__(self) -> Thing:
        return Thing(self.number + 2)

    def __exit__(self, *_: object) -> None: ...  # a `with` block counts as run to its end

    def __bool__(self) -> bool:
        return self.number % 3 != 0

    def __repr__(self) -> str:
        return f"Thing({self.number})"


def shown(value: object, depth: int = 4) -> str:
    """Return a value as text that is the same in both runs: without addresses, and finite where a list holds itself."""
    if isinstance(value, list | tuple | dict) and depth:
        parts = [part for item in value.items() for part in item] if isinstance(value, dict) else value
        return f"{type(value).__name__}({', '.join(shown(part, depth - 1) for part in parts)})"
    return repr(value) if isinstance(value, Thing | int | str | None) else type(value).__name__


class Endless(BaseException):
    """The cell went on for too long."""


def run(cell: CodeType, notebook: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return what a cell says, its end or its error last, and the names that it leaves."""
    said: list[str] = []
    space = {"say": lambda value: said.append(shown(value)), **notebook}
    steps = itertools.count()

    def trace(frame: FrameType, *_: object) -> Any:
        if frame.f_code.co_filename != cell.co_filename:
            return None  # what the interpreter does meanwhile, as a hook for what a finaliser raises, is not the cell's
        if next(steps) > 300:
            raise Endless
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        exec(cell, space)
        said.append("the end")
    except (Exception, Endless) as error:
        said.append(f"{type(error).__name__}: {error if isinstance(error, NameError) else ''}")
    finally:
        sys.settrace(before)
    return said, {name: shown(value) for name, value in space.items() if name in NOTEBOOK}


SAYS = [
    "say(x)",
    "say(g())",
    "say((a, b, c))",
    "say([x for y in a])",
    "f = lambda: say(x)\nf()",
    "def g(): return x, y",
]
AROUND = ["if {}:", "for {} in [1, 2]:", "with {} as {}:", "def g({}=1):", "while {}():", "class {}:", "try:"]


def block(random: Random, depth: int) -> str:
    """Write some lines, some of which are around others."""
    lines = []
    for _ in range(random.randint(1, 4)):
        around = random.choice(AROUND).format(*random.choices(sorted(NOTEBOOK), k=2))
        if depth and random.random() < 0.4:
            lines += [around, textwrap.indent(block(random, depth - 1), "    ")]
            lines += ["except Exception: say('caught')"] if around == "try:" else []
        else:
            rows = SAYS if random.random() < 0.4 else [cell for cell, _ in (*STATEMENTS, *BRANCHES, *SCOPES) if cell]
            lines.append(random.choice(rows))
    return "\n".join(lines)


def compiled(text: str) -> CodeType | None:
    try:
        return compile(text, "<cell>", "exec", dont_inherit=True)
    except SyntaxError:
        return None


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore:coroutine")
@pytest.mark.parametrize("seed", range(8))
def test_a_cell_does_the_same_with_only_what_it_reads(seed: int) -> None:
    texts = [block(Random(100_000 * seed + each), depth=3) for each in range(250)]
    cells = [(text, code) for text in texts if (code := compiled(text))]
    for text, code in cells:
        whole, part = ({name: Thing(number) for number, name in enumerate(sorted(NOTEBOOK))} for _ in range(2))
        unsent = {name: part.pop(name) for name in NOTEBOOK - global_names(text).reads}

        said, left = run(code, whole)
        said_there, left_there = run(code, part)

        unseen = {name: shown(value) for name, value in unsent.items() if name not in left_there and name in left}
        assert said == said_there, text
        assert left == {**unseen, **left_there}, text
    assert len(cells) > 50


def test_a_cells_magic_binds_what_stands_at_the_beginning_of_its_lines() -> None:
    source = TransformerManager().transform_cell("%%time\ny = 1\nname = 2\n\tother = 3\n")  # type: ignore[no-untyped-call]

    assert unbound("name", [source]) is None
    assert unbound("other", [source]) is None
    assert unbound("nname", [source]) is not None
