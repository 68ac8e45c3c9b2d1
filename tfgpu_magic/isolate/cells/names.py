"""Finds which global names a cell reads, from its text alone; `cell` chooses which of them are sent.

A magic counts as Python that reads and binds the same names.
"""

from __future__ import annotations

import ast
import difflib
import dis
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType

from IPython.core.inputtransformer2 import TransformerManager
from IPython.utils.text import DollarFormatter


@dataclass(frozen=True, slots=True)
class Names:
    """What a cell does with global names.

    Attributes:
        reads: names of which it may see the value from before the cell, builtins among them.
        surely: those of them that it never binds, and reads on a line that is in no branch, loop or function.
        passing: names that only its import statements and its loops bind.
    """

    reads: frozenset[str] = frozenset()
    surely: frozenset[str] = frozenset()
    passing: frozenset[str] = frozenset()


def global_names(source: str) -> Names:
    """Return what a cell does with names, without running it.

    A cell that runs with only its `reads` from the notebook does what it does with all of the notebook, as far as its
    text shows: names that `eval`, `globals()`, `%run -i` or a function of another cell uses are not seen. A name is not
    read once a line of the cell, or of a `with` block of it, has bound it; whatever is named anywhere in a branch, a
    loop or a function counts as read there. One doubt is set aside, since it would send the old model whenever a cell
    builds a new one under `with strategy.scope():`. A `with` block counts as run to its end, unless its manager is
    named for swallowing exceptions (`suppress`, `raises`, ...).

    Args:
        source: Python as IPython's input transformer leaves it, with magics as calls; top-level `await` is fine.

    Returns:
        The names; none for text that does not compile, since the cell's own run will raise the error.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cell's own compilation will warn
        try:
            walk = _StatementWalk()
            walk.run(source)
        except (RecursionError, ValueError):  # too deep for Python's stack, a number too long to write: any word may be
            return Names(reads=frozenset(re.findall(r"[^\W\d]\w*", source)))
    return Names(frozenset(walk.reads), frozenset(walk.surely), frozenset(walk.passing - walk.bound))


def unbound(name: str, texts: Sequence[str]) -> str | None:
    """Return a hint if a cell can bind no such name: none of the notebook's texts has the word, or code that is unseen.

    Args:
        name: a name.
        texts: the cell, and all that was run before it, each as IPython's input transformer leaves it.
    """
    plain = (
        _VISIBLE.sub("", text).replace("\\n", "\n").replace("\\t", "\t") for text in texts
    )  # a magic's are a literal
    cell, *before = ({*re.findall(r"[^\W\d]\w*|import \*", text)} for text in plain)
    every = cell.union(*before)
    if name in every or cell & _UNSEEN or every & _UNSEEN - {"get_ipython", "import *"}:
        return None
    near = difflib.get_close_matches(name, cell, n=1)
    return f" Did you mean -o {near[0]}?" if near else ""


_UNSEEN = {"import *", "__main__", "exec", "eval", "get_ipython", "globals", "locals", "setattr", "var", "vars"}
"""What a cell says that may bind names which its text does not have."""

_VISIBLE = re.compile(
    r"get_ipython\(\)\.(system|getoutput|run_line_magic\('(cd|conda|env|matplotlib|pip|time|timeit)'"
    r"|run_cell_magic\('(capture|prun|time|timeit|(tf_)?gpu', 'isolate[^']*)')"
)
"""What binds no other names, in the words of IPython's input transformer."""


class _StatementWalk:
    """The walk through a cell's statements, in order.

    Attributes:
        rebound: names that a line has bound or deleted, so that their value from before the cell cannot be seen.
        bound: names that anything but an import or a loop binds.
    """

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.surely: set[str] = set()
        self.passing: set[str] = set()
        self.bound: set[str] = set()
        self.rebound: set[str] = set()

    def run(self, source: str) -> None:
        """Walk Python source that runs at this point; walk nothing if it does not compile."""
        try:
            tree = ast.parse(source)
            compile(tree, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except (SyntaxError, ValueError):  # ValueError: a null byte
            return
        self._note_bound(tree)
        self._each(tree.body)

    def _each(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            match statement:
                case ast.With() | ast.AsyncWith() if not any(_swallows(item.context_expr) for item in statement.items):
                    for item in statement.items:
                        self._each([ast.Expr(item.context_expr)])
                        self._rebind([item.optional_vars])
                    self._each(statement.body)
                case ast.Expr(value=ast.Call() as call) if (magic := meaning(call)) is not None:
                    self.run(magic)
                case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                    self._read(statement, surely=True)
                    self._rebind(targets)
                case ast.AnnAssign(target=target, value=value):
                    self._read(statement, surely=True)
                    self._rebind([target] if value else [])
                case ast.Import() | ast.ImportFrom():
                    self.rebound |= _imported(statement)
                case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Assert():
                    self._read(statement, surely=True)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    self._read(statement, surely=False)
                    self.rebound.add(name)
                case _:
                    self._read(statement, surely=False)

    def _rebind(self, targets: Iterable[ast.expr | None]) -> None:
        for target in targets:
            for part in ast.walk(target) if target else ():
                if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                    self.rebound.add(part.id)

    def _read(self, statement: ast.stmt, *, surely: bool) -> None:
        named = _named(statement) - self.rebound
        self.reads |= named
        if surely:
            self.surely |= named - self.bound - self.passing

    def _note_bound(self, tree: ast.Module) -> None:
        turns: set[int] = set()  # the places at which loops and comprehensions bind
        for part in ast.walk(tree):
            match part:
                case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
                    stored = [one for one in ast.walk(target) if isinstance(one, ast.Name) and _is_stored(one)]
                    turns |= set(map(id, stored))
                    self.passing |= {one.id for one in stored}
                case ast.Import() | ast.ImportFrom():
                    self.passing |= _imported(part)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    self.bound.add(name)
                case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                    self.bound.add(name)
                case ast.ExceptHandler(name=str(name)):
                    self.bound.add(name)
        self.bound |= {
            part.id
            for part in ast.walk(tree)
            if isinstance(part, ast.Name) and _is_stored(part) and id(part) not in turns
        }


def _named(statement: ast.stmt) -> set[str]:
    """Return the global names that a statement reads, with all that is in it."""
    found: set[str] = set()
    for part in ast.walk(statement):
        match part:
            case ast.Constant(value=str(text)):
                found |= set(re.findall(r"@([^\W\d]\w*)", text))  # in pandas' `query` and `eval`: `a > @cutoff`
            case ast.Call() if (magic := meaning(part)) is not None:
                found |= global_names(magic).reads
    alone, flags = ast.fix_missing_locations(ast.Module([statement], [])), ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for code in _family(compile(alone, "<cell>", "exec", flags, dont_inherit=True, optimize=0)):
        found |= {str(one.argval) for one in dis.get_instructions(code) if one.opname in _READS}
    return found


_READS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL"}
"""The instructions that need a global name; `del x` does, too. A class body reads a module's name with the first."""


def _family(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _family(part)


def _imported(statement: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in statement.names} - {"*"}


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _swallows(manager: ast.expr) -> bool:
    """Return whether a context manager is named for catching exceptions."""
    called = ast.unparse(manager.func if isinstance(manager, ast.Call) else manager).rpartition(".")[2].lower()
    return any(word in called for word in ("suppress", "raises", "ignor", "exitstack", "swallow"))


def meaning(call: ast.Call) -> str | None:
    """Return the meaning of a call as IPython's input transformer writes it: `get_ipython().system('ls $path')`.

    Args:
        call: any call.

    Returns:
        Python that reads and binds the same names, which may not be valid if the user's is not; None for any other
        call, or one whose arguments are not plain strings.
    """
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr=how)):
            texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        case _:
            return None
    match how, texts:
        case "system" | "getoutput", [command]:
            return _expanded(command)
        case "run_line_magic" | "run_cell_magic", [name, line, *body]:
            return _of_magic(name, line, "".join(body))
    return None


def _of_magic(name: str, line: str, body: str) -> str:
    if name in _OPTIONS:
        source = f"{_python(_OPTIONS[name].sub('', line))}\n{_python(body)}"
        function = f"def _of_timeit():\n pass\n{textwrap.indent(source, ' ')}"  # which binds no global names
        return function if name == "timeit" else source
    if name == "capture":
        outputs = [f"{word} = None" for word in line.split() if word.isidentifier()]
        return "\n".join([_python(body), *outputs])
    if name in _HELP:
        return line
    return _expanded(line) if name in _VERBATIM else f"{_expanded(line)}\n{_expanded(body)}"


def _options(flags: str, valued: str) -> re.Pattern[str]:
    """Return a pattern for the options before a line's code, as `getopt` takes them: `-q -n10`, `-qn 10`."""
    return re.compile(rf"^\s*(?:-(?:[{flags}]+|[{flags}]*[{valued}]\s*\S+)(?:\s+|$))*")


_OPTIONS = {
    "time": re.compile(r"^\s*(?:--[\w-]+(?:\s+|$))*"),
    "timeit": _options("tcqo", "nrpv"),
    "prun": _options("rq", "DlsT"),
}
"""The options of the magics whose text is Python, which they do not expand."""

_HELP = {"pdef", "pdoc", "pfile", "pinfo", "pinfo2", "psource"}
"""The magics behind `x?` and its like: the line is the expression that help is wanted for."""

_VERBATIM = {
    *("bash", "cmd", "perl", "pypy", "python", "python2", "python3", "ruby", "script", "sh"),
    *("file", "html", "HTML", "javascript", "js", "latex", "markdown", "svg", "SVG", "writefile"),
}
"""IPython's cell magics that take their body as it is. Any other magic may expand it."""


def _python(text: str) -> str:
    try:
        return TransformerManager().transform_cell(text)  # type: ignore[no-untyped-call]  # IPython has no types here
    except SyntaxError:
        return text


def _expanded(text: str) -> str:
    """Return the expressions whose values IPython puts into a text: `$name`, `$name.attribute` and `{expression}`.

    As in `InteractiveShell.var_expand`, one that is not valid Python leaves the whole text as it is: the `$path` of
    `awk '{print $1}' $path` is the shell's.
    """
    found = []
    try:
        for _, field, spec, _ in DollarFormatter().parse(text):
            if field is not None:
                expression = f"{field}:{spec}" if spec else field
                ast.parse(expression.lstrip(" \t"), mode="eval")
                found.append(f"({expression}\n)")
    except (SyntaxError, ValueError):
        return ""
    return "\n".join(found)
