"""IPython's cells: what can be told of one from its text alone, and the base of what watches them."""

from __future__ import annotations

import contextlib
import io
import re
import tokenize
from typing import Any


def title(body: str) -> str:
    """Return a cell's first line that is no import, magic or comment; else its first line."""
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    first = [line for line in lines if not line.startswith(("#", "import ", "from ", "%"))]
    return next(iter([*first, *lines]), "")


def as_numbered(body: str, magic: str) -> str:
    """Return the text below a magic with its lines numbered as in the notebook, where the first line is the magic's."""
    return body if body.lstrip().startswith("%%") else f"# {magic}\n{body}"


def measured(lines: list[str]) -> list[str]:
    """Return a cell's lines where `%%tf_gpu measure` above it is a call of its own: the cell runs as any other."""
    found = re.match(r"%%(tf_gpu|gpu)[ \t]+(measure\b.*)", lines[0]) if lines else None
    if found is None:
        return lines
    return [f"get_ipython().run_cell_magic({found[1]!r}, {found[2].strip()!r}, '\\n')\n", *lines[1:]]


measured.has_side_effects = True  # type: ignore[attr-defined]  # by which IPython asks for more lines, as of any magic


def ends_quietly(source: str) -> bool:
    """Tell whether a cell's last expression ends with a semicolon, so that its value is not shown."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    try:  # as IPython's display hook does, which before 8.4 has no function for it
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return False
    return any(token.string == ";" for token in [token for token in tokens if token.type not in nothing][-1:])


class CellWatch:
    """A watch of the cells, which does nothing yet.

    Args:
        shell: IPython's shell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def start(self) -> None:
        """Watch the cells, from the end of the one that runs on."""
        self._shell.events.register("pre_run_cell", self._before)
        self._shell.events.register("post_run_cell", self._after)

    def stop(self) -> None:
        """Watch no more."""
        with contextlib.suppress(ValueError):  # it was not started
            self._shell.events.unregister("pre_run_cell", self._before)
            self._shell.events.unregister("post_run_cell", self._after)

    def _before(self, info: Any) -> None:
        """Called before a cell, with IPython's `ExecutionInfo`."""

    def _after(self, result: Any) -> None:
        """Called after it, with its `ExecutionResult`; ipykernel has None of a cell interrupted while it awaited."""
