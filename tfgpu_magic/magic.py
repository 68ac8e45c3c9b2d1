"""The magics class that IPython registers for `%tf_gpu`; its words and what they do are in `words`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display
from traitlets import Bool, Float, Unicode, observe

from tfgpu_magic.config.first_use import FirstUseWatch
from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.host import starting
from tfgpu_magic.reporter import Reporter


def _help() -> str:
    from tfgpu_magic.words import help, table  # noqa: A004  # as below

    return help.text(table.WORDS)


@magics_class
class TfGpuMagics(Magics):
    """The magics. An administrator sets a policy for all users with ``c.TfGpuMagics.policy = "growth"``."""

    policy = Unicode(
        "",
        help="The policy, such as `growth`, that holds until a `%tf_gpu` line says another. It is checked when "
        "TensorFlow is imported; where it cannot be had in full, the nearest that can holds, and at the least growth.",
    ).tag(config=True)

    warm = Bool(
        False,
        help="Whether to get ready for isolated cells when the extension is loaded: a process of some 600 MB beside "
        "every kernel, also beside one that never uses TensorFlow.",
    ).tag(config=True)

    grace = Float(
        5.0,
        min=0.0,
        help="Seconds after an interrupt or a timeout until an isolated call that does not react to it is killed.",
    ).tag(config=True)

    def __init__(self, shell: InteractiveShell, **kwargs: Any) -> None:
        super().__init__(shell, **kwargs)
        self.watch = FirstUseWatch(shell)
        self.reporter = Reporter(shell, running=not starting(shell))
        self.observe(self._on_policy, "policy")  # what configuration has set by now is no change

    def _on_policy(self, change: Any) -> None:
        """Have `%config TfGpuMagics.policy = ...` do what `%tf_gpu` would: a refusal is shown in the same cell."""
        line = f"default; {change['new']}" if change["new"] else "default"
        self.tf_gpu(line)  # type: ignore[call-arg, misc]  # the decorator says that it is another function

    @observe("grace")
    def _set_grace(self, change: Mapping[str, Any]) -> None:
        from tfgpu_magic.isolate import call  # few users set it, and few use isolated calls

        call.GRACE = change["new"]

    @line_cell_magic
    def tf_gpu(self, line: str, cell: str | None = None) -> Any:
        """Set up TensorFlow's GPU memory before its first op, and show what holds it; `%tf_gpu help` explains how."""
        looking = None
        if cell is None and "tfgpu_magic.words.line" not in sys.modules:
            # It imports subprocess, which loading the extension does not need.
            from tfgpu_magic.monitor.look import LOOK_TIMEOUT, Looking

            looking = Looking(LOOK_TIMEOUT)  # a policy's look at the GPUs begins before all words are imported
        from tfgpu_magic.words import line as lines  # it imports all words, and loading the extension needs none

        self.watch.check()
        try:
            run = None if cell is None else lines.above(line, cell, self.shell)
            answer = lines.answer(line, looking) if run is None else None
        except TfGpuError as error:
            text = lines.refused(error, line, self.shell)
            raise UsageError(text) from None  # IPython shows no traceback, and stops "run all"
        if run is not None:
            return run()  # its errors are the cell's own
        # Not returned: it would be lost in a loop, or where it is not a cell's last line.
        if answer is not None:
            display(answer)  # type: ignore[no-untyped-call]  # IPython's
        return None

    tf_gpu.getdoc = _help  # type: ignore[union-attr]  # where IPython asks for what `%tf_gpu?` shows
