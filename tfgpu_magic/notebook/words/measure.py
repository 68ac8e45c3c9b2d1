"""`%tf_gpu measure`: what the cell that it stands in does to GPU memory. `--fit` says how much to ask for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from IPython.display import display

from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.message import paragraph
from tfgpu_magic.ground.process_kind import shell as here
from tfgpu_magic.insight import recommend
from tfgpu_magic.insight.measurement import Measurement
from tfgpu_magic.insight.tracker import meter
from tfgpu_magic.policy.word import ParsedLine


def prepare(line: ParsedLine, cell: str, shell: Any) -> Callable[[], object]:
    """Return the function that begins to measure the cell."""
    if cell.strip():  # IPython refuses an empty one
        raise PolicyError(paragraph(("Only a whole cell is measured so.", line.word.forms)))
    return _measure(line, shell)


def run(line: ParsedLine) -> object:
    """Measure the rest of the cell, or return how much to ask for."""
    if list(line.flags) == ["--fit"]:
        return recommend.recommendation()
    _measure(line, here())()
    return None


def _measure(line: ParsedLine, shell: Any) -> Callable[[], object]:
    """Return the function that begins to measure a cell."""
    name = line.flags.get("--as", "")
    if name and not name.isidentifier():
        raise PolicyError(paragraph((f"{name!r} is no name.", line.word.forms)))

    def show(measured: Measurement) -> None:
        display(measured)  # type: ignore[no-untyped-call]  # IPython's
        if "--fit" in line.flags:
            display(recommend.recommendation())  # type: ignore[no-untyped-call]  # IPython's
        if name:
            shell.user_ns[name] = measured

    return partial(meter(shell).measure, show)
