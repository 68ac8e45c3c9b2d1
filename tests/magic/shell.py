"""A real IPython in the test's own process on the machine: cells in, what a person sees out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config


@dataclass(frozen=True)
class Seen:
    """What one cell gave: everything printed, what it displayed last, and the name of the error that stopped it."""

    text: str
    value: str
    error: str
    html: str = ""
    markdown: str = ""


def cells(*sources: str) -> list[Seen]:
    """Run cells in one IPython, after one that loads the extension."""
    return loading(*sources)[1:]


def loading(*sources: str) -> list[Seen]:
    """Return the same, with what loading the extension gave."""
    shell = InteractiveShell.instance(colors="nocolor")
    return [_cell(shell, source) for source in ("%load_ext tfgpu_magic", *sources)]


def configured(settings: Mapping[str, Any], *sources: str) -> list[Seen]:
    """Return the same where the magics have these settings by configuration."""
    InteractiveShell.instance(config=Config({"TfGpuMagics": dict(settings)}))
    return loading(*sources)


def shown(*sources: str) -> list[str]:
    """Run cells in one IPython, and return what a person sees of each."""
    shell = InteractiveShell.instance(colors="nocolor")
    return [_cell(shell, source).text for source in sources]


def last(*sources: str) -> Seen:
    """Run cells, and return what the last one gave."""
    return cells(*sources)[-1]


def each(lines: Sequence[str]) -> dict[str, Seen]:
    """Run cells of which none undoes what another shows, and return what each gave: one process for a table of them."""
    return dict(zip(lines, cells(*lines), strict=True))


def _cell(shell: InteractiveShell, source: str) -> Seen:
    with capture_output() as heard:
        result = shell.run_cell(source, store_history=True)  # type: ignore[no-untyped-call]  # IPython's
    error = result.error_in_exec or result.error_before_exec
    shown = [output.data for output in heard.outputs] or [{}]
    text = "".join(data.get("text/plain", "") for data in shown)
    return Seen(
        heard.stdout + heard.stderr + text,
        shown[-1].get("text/plain", ""),
        type(error).__name__ if error else "",
        shown[-1].get("text/html", ""),
        shown[-1].get("text/markdown", ""),
    )
