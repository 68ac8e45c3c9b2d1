"""Translates a cell's magics into Python that reads and binds the same names."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """Python that reads and binds the names that a magic's call does; `apart` if it runs in a function of its own."""

    source: str
    apart: bool = False


def meaning(call: ast.Call) -> Meaning | None:
    """Return the meaning of a call as IPython's input transformer writes it: `get_ipython().system('ls $path')`.

    Args:
        call: any call.

    Returns:
        The meaning; None for any other call, or one whose arguments are not plain strings. The source of a meaning
        may not be valid Python if the user's is not.
    """
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr=how)):
            texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        case _:
            return None
    match how, texts:
        case "system" | "getoutput", [command]:
            return Meaning(_expanded(command))
        case "run_line_magic", [name, line]:
            return _of_line(name, line)
        case "run_cell_magic", [name, line, body]:
            return _of_cell(name, line, body)
    return None


def _of_line(name: str, line: str) -> Meaning:
    if name in _OPTIONS:
        return Meaning(_python(_OPTIONS[name].sub("", line)), apart=name == "timeit")
    return Meaning(line if name in _HELP else _expanded(line))


def _of_cell(name: str, line: str, body: str) -> Meaning:
    if name in _OPTIONS:
        first = _OPTIONS[name].sub("", line)
        return Meaning(f"{_python(first)}\n{_python(body)}", apart=name == "timeit")
    if name == "capture":
        outputs = [f"{word} = None" for word in line.split() if word.isidentifier()]
        return Meaning("\n".join([_python(body), *outputs]))
    return Meaning(_expanded(line) if name in _VERBATIM else f"{_expanded(line)}\n{_expanded(body)}")


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
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        return TransformerManager().transform_cell(text)  # type: ignore[no-untyped-call]  # IPython has no types here
    except SyntaxError:
        return text


def _expanded(text: str) -> str:
    """Return the expressions whose values IPython puts into a text: `$name`, `$name.attribute` and `{expression}`.

    As in `InteractiveShell.var_expand`, one that is not valid Python leaves the whole text as it is: the `$path` of
    `awk '{print $1}' $path` is the shell's.
    """
    from IPython.utils.text import DollarFormatter

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
