"""Runs a cell or a line of the user's in its notebook while it is measured, as IPython's `%%time` does."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.display import display

from tfgpu_magic.cell_source import as_numbered, ends_quietly
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.host import shell as here
from tfgpu_magic.insight import asking
from tfgpu_magic.insight.measuring import Measuring
from tfgpu_magic.views.measurement import Measurement

AWAITS = "Code that awaits is measured from within: write `with tfgpu_magic.measure() as m:` in the cell."


@dataclass(frozen=True, slots=True)
class Code:
    """Code that is ready to run. Calling it returns the value of its last expression; its errors are its own.

    Attributes:
        body: what is executed, but for its last expression.
        last: its last expression; None where that is none.
        quiet: whether no value is to be shown.
        spaces: the global and the local names.
        done: is given the measurement, also where the code fails.
    """

    body: Any
    last: Any
    quiet: bool
    spaces: tuple[dict[str, Any], Mapping[str, Any]]
    done: Callable[[Measurement], None]

    def __call__(self) -> Any:
        """Run it."""
        __tracebackhide__ = True  # by which IPython leaves out frames that do not help its user
        measuring, value = Measuring(), None
        try:
            with measuring:
                exec(self.body, *self.spaces)  # noqa: S102  # the user's own code, in the user's own notebook
                if self.last is not None:
                    value = eval(self.last, *self.spaces)  # noqa: S307
        finally:
            with contextlib.suppress(RuntimeError):  # it was interrupted before it began
                self.done(measuring.result)
        return None if self.quiet else value


@dataclass(frozen=True, slots=True)
class Shown:
    """Shows a measurement below the cell that runs.

    Attributes:
        name: the notebook's name that it is put into; empty where it is none.
        fit: whether to say how much to ask for, too.
    """

    name: str
    fit: bool

    def __call__(self, measured: Measurement) -> None:
        """Show it."""
        display(measured)  # type: ignore[no-untyped-call]  # IPython's
        if self.fit:
            display(asking.answer())  # type: ignore[no-untyped-call]  # IPython's
        if self.name:
            here().user_ns[self.name] = measured


def prepare(
    shell: Any, source: str, magic: str, names: Mapping[str, Any] | None, done: Callable[[Measurement], None]
) -> Code:
    """Compile code of the user's.

    Args:
        shell: the notebook's IPython.
        source: the code as it is written.
        magic: the line above it, of a cell; empty of a line.
        names: the names where it stands, if that is a line; None is the notebook.
        done: is given the measurement, also where the code fails.

    Raises:
        PolicyError: the code awaits something.
        SyntaxError: it is no code.
    """
    python = shell.transform_cell(as_numbered(source, magic) if magic else source)
    tree = shell.transform_ast(shell.compile.ast_parse(python))
    name = shell.compile.cache(python, shell.displayhook.prompt_count, raw_code=source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    return Code(
        body=_compiled(shell, tree, name, "exec"),
        last=None if last is None else _compiled(shell, ast.Expression(last.value), name, "eval"),
        quiet=ends_quietly(python),
        spaces=(shell.user_global_ns, shell.user_ns if names is None else names),
        done=done,
    )


def _compiled(shell: Any, tree: ast.Module | ast.Expression, name: str, mode: str) -> Any:
    awaiting = compile(tree, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | shell.compile.flags)
    if awaiting.co_flags & inspect.CO_COROUTINE:
        raise PolicyError(AWAITS)
    return shell.compile(tree, name, mode)
