"""The magics class that IPython registers for `%tf_gpu` and `%gpu`; their words and what they do are in `words`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display
from traitlets import observe

from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.host import starting
from tfgpu_magic.monitor.driver.look import LOOK_TIMEOUT, PendingLook
from tfgpu_magic.notebook.cell_watches import FailureWatch, FirstUseWatch, IdleRelease
from tfgpu_magic.notebook.reporter import Reporter
from tfgpu_magic.policy.settings import TfGpuSettings

if TYPE_CHECKING:
    from tfgpu_magic.host import CellWatch
    from tfgpu_magic.policy.word import Magic

MAGICS: tuple[Magic, ...] = ("tf_gpu", "gpu")
"""The names of the magics."""


def _lines() -> Any:
    """Return the module that does what a line says; it imports the table of all words."""
    from tfgpu_magic.notebook.words import line

    return line


def configuration() -> Any:
    """Return the module that does what few configurations and sessions ask for; loading the extension needs it not."""
    from tfgpu_magic.notebook import configuration

    return configuration


@magics_class
class TfGpuMagics(TfGpuSettings, Magics):
    """The magics. An administrator sets a policy for all users with ``c.TfGpuMagics.policy = "growth"``."""

    def __init__(self, shell: InteractiveShell, **kwargs: Any) -> None:
        super().__init__(shell, **kwargs)
        self.watch = FirstUseWatch(shell)
        self.reporter = Reporter(shell, running=not starting(shell))
        self.idle_release = IdleRelease(shell, lambda: self.release_after)
        self._parks_itself: CellWatch | None = None
        # In this order: the first notes what a failure has broken.
        self.watches = (self.watch, FailureWatch(shell, lambda: self.why), self.reporter, self.idle_release)
        self.observe(self._on_policy, "policy")  # what configuration has set by now is no change
        self.observe(self._on_ceiling, "ceiling")
        self.observe(self._on_parking, "parking")
        self.observe(self._on_open_module, "parking_on_open_module")

    def park_itself(self, watch: CellWatch | None) -> None:
        """Have this process parked by itself by a watch of its cells that has begun, or not any more."""
        if self._parks_itself is not None:
            self._parks_itself.stop()
        self._parks_itself = watch

    def _on_policy(self, change: Any) -> None:
        """Have `%config TfGpuMagics.policy = ...` do what a line would: a refusal is shown in the same cell."""
        line = f"default; {change['new']}" if change["new"] else "default"
        self._run(line, None, configuration().magic_for(line))

    def _on_ceiling(self, change: Any) -> None:
        """Have `%config TfGpuMagics.ceiling = ...` lower the ceiling; what holds then is what the setting shows."""
        try:
            self.ceiling = configuration().lower_ceiling(change["new"])
        except TfGpuError as error:
            self.ceiling = configuration().ceiling_in_force()
            raise UsageError(str(error)) from None

    def _on_parking(self, change: Any) -> None:
        """Have `%config TfGpuMagics.parking = ...` hold from now on; what is no setting is refused."""
        try:
            configuration().park(change["new"])
        except TfGpuError as error:
            self.parking = change["old"]
            raise UsageError(str(error)) from None

    def _on_open_module(self, change: Any) -> None:
        """Have `%config` take the permission back only: what may stop a machine is not for it to allow."""
        if change["new"]:
            self.parking_on_open_module = False
            raise UsageError(
                "`%config` does not allow parking under the open kernel module, since it may stop the whole machine. A "
                "configuration file does: `c.TfGpuMagics.parking_on_open_module = True` in ipython_config.py."
            )

    @observe("quiet")
    def _set_quiet(self, change: Mapping[str, Any]) -> None:
        configuration().be_quiet(on=change["new"])

    @observe("quiet_tensorflow")
    def _set_quiet_tensorflow(self, change: Mapping[str, Any]) -> None:
        configuration().quieten(on=change["new"])

    @observe("grace")
    def _set_grace(self, change: Mapping[str, Any]) -> None:
        configuration().set_grace(change["new"])

    @line_cell_magic
    def tf_gpu(self, line: str, cell: str | None = None) -> Any:
        """Set up TensorFlow's GPU memory before its first op, and show what holds it; `%tf_gpu help` explains how."""
        __tracebackhide__ = True  # by which IPython leaves out frames that do not help its user
        return self._run(line, cell, "tf_gpu")

    @line_cell_magic
    def gpu(self, line: str, cell: str | None = None) -> Any:
        """Do the same for every framework: TensorFlow, PyTorch and JAX."""
        __tracebackhide__ = True  # as above
        return self._run(line, cell, "gpu")

    # Where IPython asks for what `%tf_gpu?` shows.
    tf_gpu.getdoc = gpu.getdoc = lambda: _lines().usage()  # type: ignore[union-attr]

    def _run(self, line: str, cell: str | None, magic: Magic) -> Any:
        """Run a line of a magic, or a cell below one.

        Args:
            line: what follows the magic's name.
            cell: the text below it; None of a line.
            magic: the magic's name.
        """
        __tracebackhide__ = True  # as above
        first = cell is None and "tfgpu_magic.notebook.words.line" not in sys.modules
        looking = PendingLook(LOOK_TIMEOUT) if first else None  # it goes on while the words are imported
        lines = _lines()
        shell = self.shell
        assert shell is not None  # noqa: S101  # it was made with one
        self.watch.check()
        try:
            run = None if cell is None else lines.above(line, cell, shell, magic)
            answer = lines.answer(line, looking, magic) if run is None else None
        except TfGpuError as error:
            raise lines.refused(error, line, shell, magic) from None
        if run is not None:
            return run()  # its errors are the cell's own
        # Not returned: it would be lost in a loop, or where it is not a cell's last line.
        if answer is not None:
            display(answer)  # type: ignore[no-untyped-call]  # IPython's
        return None
