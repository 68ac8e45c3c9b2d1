"""A real IPython in the test's own process on the machine: cells in, what a person sees out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


@dataclass(frozen=True)
class Seen:
    """What one cell gave: everything printed, the value, and the name of the error that stopped it."""

    text: str
    value: Any
    error: str


def cells(*sources: str) -> list[Seen]:
    """Run cells in one IPython, after one that loads the extension."""
    return loading(*sources)[1:]


def loading(*sources: str) -> list[Seen]:
    """The same, with what loading the extension gave."""
    shell = InteractiveShell.instance(colors="nocolor")
    return [_cell(shell, source) for source in ("%load_ext tfgpu_magic", *sources)]


def last(*sources: str) -> Seen:
    """Run cells, and return what the last one gave."""
    seen = cells(*sources)[-1]
    value = seen.value
    return Seen(seen.text, None if value is None else repr(value), seen.error)


def _cell(shell: InteractiveShell, source: str) -> Seen:
    with capture_output() as heard:
        result = shell.run_cell(source, store_history=True)  # type: ignore[no-untyped-call]  # IPython's
    error = result.error_in_exec or result.error_before_exec
    shown = "".join(output.data.get("text/plain", "") for output in heard.outputs)
    return Seen(heard.stdout + heard.stderr + shown, result.result, type(error).__name__ if error else "")
