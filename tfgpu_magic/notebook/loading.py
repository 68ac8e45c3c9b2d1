"""The magics: the class that IPython registers for `%tf_gpu` and `%gpu`, and how a shell gets it and is rid of it.

The words and what they do are in `words`; `configuration` enforces what is configured.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from IPython.core import completer
from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import cell_magic
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display
from traitlets import observe
from traitlets.config import Config

from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.frameworks import import_hook
from tfgpu_magic.ground.message import format_list
from tfgpu_magic.ground.process_kind import in_cell, is_starting, preload, process_kind
from tfgpu_magic.ground.process_kind import magics as magics_of
from tfgpu_magic.notebook.cell_watches import FailureWatch, FirstUseWatch, IdleRelease
from tfgpu_magic.notebook.reporter import Reporter
from tfgpu_magic.policy import CEILING, POLICY, settings
from tfgpu_magic.policy.settings import SECTION, TfGpuSettings

if TYPE_CHECKING:
    from tfgpu_magic.policy.word import Magic

MAGICS: tuple[Magic, ...] = ("tf_gpu", "gpu")
"""The names of the magics."""

_ENFORCED = {"policy", "policies", "ceiling", "ceilings"}

if __name__ not in preload:
    preload.append(__name__)  # an isolated cell has the magics too


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Load the magics. ``%load_ext tfgpu_magic`` calls this.

    It also applies the policy that the environment or the configuration gives. In a kernel that was restarted for a
    policy, it has loaded them already.
    """
    if magics_of(shell) is not None:
        return
    magics = attach(shell)
    if process_kind() == "cell":
        return
    if magics.warm:
        configuration().warm()
    if "google.colab" in sys.modules:
        words: tuple[str, str] | None = configuration().kept_words()  # only there any are kept for the next kernel
        if words is not None:
            _apply(shell, *words, _print)


def attach(shell: InteractiveShell) -> TfGpuMagics:
    """Enforce what is configured, register the magics with a shell, and start the reporter of its process."""
    magics = TfGpuMagics(shell, config=Config({SECTION: _enforce_configured(shell)}))
    shell.register_magics(magics)
    shell.Completer.custom_matchers.append(_complete)
    shell.input_transformers_cleanup.append(_measure_cell)
    for watch in magics.watches:
        watch.start()
    return magics


def _enforce_configured(shell: InteractiveShell) -> dict[str, Any]:
    """Enforce what is configured, and return all settings that can be used, with the ceiling in force."""
    given, file = settings.of_configuration(shell.config, _configuration_name(shell)), settings.of_file()
    values = {**file.values, **given.values}
    if process_kind() == "cell":
        return values  # its notebook's policy came along, unless the cell asks for another
    for flaw in (*file.flaws, *given.flaws):
        _warn(shell, f"tfgpu_magic: {flaw}")
    configured = _ENFORCED & values.keys() or given.unread or file.unread
    if configured or not os.environ.keys().isdisjoint({POLICY, CEILING}):
        # So that the setting shows what holds, and that can be lowered.
        values["ceiling"] = configuration().enforce(given, file, functools.partial(_warn, shell))
    return values


def _configuration_name(shell: InteractiveShell) -> str:
    """Return what IPython's configuration is called: with the files that name the magics, if they are known."""
    app: Any = shell  # its parent is an application, or a kernel whose parent is one
    while app is not None and not hasattr(app, "loaded_config_files"):
        app = app.parent
    files = [file for file in ([] if app is None else app.loaded_config_files) if _names_us(file)]
    where = settings.CONFIGURATION
    return f"{where} ({format_list(files)})" if files else where


def _names_us(file: str) -> bool:
    try:
        return "tfgpu" in Path(file).read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return False


def _measure_cell(lines: list[str]) -> list[str]:
    """Return a cell's lines, in which `%%tf_gpu measure` above it has become a call: the cell runs as any other."""
    found = re.match(r"%%(tf_gpu|gpu)[ \t]+(measure\b.*)", lines[0]) if lines else None
    if found is None:
        return lines
    call = f"get_ipython().run_cell_magic({found[1]!r}, {found[2].strip()!r}, '\\n')\n"
    blank = [*takewhile(lambda line: not line.strip(), lines[1:])]  # IPython passes over them at a cell's top
    return [call, *blank, *cell_magic(lines[1 + len(blank) :])]  # type: ignore[no-untyped-call]  # IPython's


_measure_cell.has_side_effects = True  # type: ignore[attr-defined]  # by which IPython asks for more lines, as of any magic


def _complete(asked: Any) -> Any:
    """Return what completes a line, as IPython asks at Tab: before 8.6 with a text, and else with a context."""
    of_text = isinstance(asked, str)
    line = InteractiveShell.instance().Completer.text_until_cursor if of_text else asked.text_until_cursor
    if "gpu" not in line:  # no line of ours
        return [] if of_text else {"completions": []}
    from tfgpu_magic.notebook import complete

    return complete.of_text(line, asked) if of_text else complete.in_context(line)


if hasattr(completer, "context_matcher"):
    _complete = completer.context_matcher(identifier="tfgpu_magic")(_complete)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics. ``%unload_ext tfgpu_magic`` calls this. What they have set stays set; calls that run go on."""
    magics = shell.magics_manager.registry.pop(TfGpuMagics.__name__, None)
    if magics is not None:
        for watch in magics.watches:
            watch.stop()
        if magics in shell.configurables:
            shell.configurables.remove(magics)  # %config would find this instance and not the next one
        for kind in ("line", "cell"):
            for name in MAGICS:
                shell.magics_manager.magics[kind].pop(name, None)
        shell.Completer.custom_matchers.remove(_complete)
        shell.input_transformers_cleanup.remove(_measure_cell)
    tracking = sys.modules.get("tfgpu_magic.insight.tracker")
    if tracking is not None:
        tracking.meter(shell).track(None)
    used = sys.modules.get("tfgpu_magic.isolate.process.forkserver_client")
    if used is not None and process_kind() != "cell":  # the isolated calls of a cell may outlive the extension
        used.FORK_SERVER.stop()  # it holds 600 MB, and the next call, if any, starts another


def _resume(words: str, others: str = "") -> None:
    """Load the extension in a kernel that was restarted for a policy, apply it, and report on it in the first cell.

    Args:
        words: the policy for TensorFlow.
        others: that for the other frameworks; empty if nothing is asked of them.
    """
    shell = InteractiveShell.instance()
    if magics_of(shell) is None:  # of IPython's own loading, `%load_ext` in a cell would say that it was done before
        load_ipython_extension(shell)
    magics_of(shell).reporter.note_idle()  # this runs in no cell
    # What this request prints is seen by nobody; and a line of the first cell that sets a policy says it itself.
    _apply(shell, words, others, functools.partial(_print_later, unless=configuration().sets_policy))


def _apply(
    shell: InteractiveShell, words: str, others: str, show: Callable[[InteractiveShell, str, TextIO], None]
) -> None:
    """Apply the words of a restart, and report on them."""
    try:
        said = configuration().after_restart(words, others)
    except TfGpuError as error:
        _warn(shell, f"tfgpu_magic: {error}")
    else:
        show(shell, f"tfgpu_magic: after the restart, {said}", sys.stdout)


def _warn(shell: InteractiveShell, text: str) -> None:
    """Show a warning in the cell that runs, or in the first one, and write it to the log of the kernel's server."""
    if hasattr(shell, "kernel"):  # in a terminal the log would be shown in the same place
        shell.log.warning("%s", text.replace("\n", " "))
    _print(shell, text, sys.stderr)


def _print(shell: InteractiveShell, text: str, stream: TextIO) -> None:
    """Print a text in the cell that runs, or in the first one."""
    if is_starting(shell):
        _print_later(shell, text, stream)
    else:
        print(text, file=stream, flush=True)


def _print_later(
    shell: InteractiveShell, text: str, stream: TextIO, unless: Callable[[str], object] = lambda _: False
) -> None:
    """Print a text in the next cell, unless that cell is one of some: while none is running, no output is shown."""

    def show(info: Any) -> None:
        shell.events.unregister("pre_run_cell", show)
        if not unless(info.raw_cell or ""):
            print(text, file=stream)

    shell.events.register("pre_run_cell", show)


def _lines() -> Any:
    """Return the module that runs lines, which imports the table of all commands."""
    from tfgpu_magic.notebook.words import line

    return line


def configuration() -> Any:
    """Return the module that does what few configurations and sessions ask for. Loading the extension needs it not."""
    from tfgpu_magic.notebook import configuration

    return configuration


@magics_class
class TfGpuMagics(TfGpuSettings, Magics):
    """The magics. An administrator sets a policy for all users with ``c.TfGpuMagics.policy = "growth"``."""

    def __init__(self, shell: InteractiveShell, **kwargs: Any) -> None:
        super().__init__(shell, **kwargs)
        self.watch = FirstUseWatch(shell)
        self.reporter = Reporter(shell, running=in_cell())
        self.idle_release = IdleRelease(shell, lambda: self.release_after)
        # In this order: the first notes what a failure has broken.
        self.watches = (self.watch, FailureWatch(shell, lambda: self.why), self.reporter, self.idle_release)
        self.observe(self._on_policy, "policy")  # what configuration has set by now is no change
        self.observe(self._on_ceiling, "ceiling")

    def _on_policy(self, change: Any) -> None:
        """Run the policy of `%config TfGpuMagics.policy = ...` as a line: a refusal is shown in the same cell."""
        line = f"default; {change['new']}" if change["new"] else "default"
        self._run(line, None, configuration().magic_for(line))

    def _on_ceiling(self, change: Any) -> None:
        """Lower the ceiling for `%config TfGpuMagics.ceiling = ...`, and set the setting to the ceiling in force."""
        try:
            self.ceiling = configuration().lower_ceiling(change["new"])
        except TfGpuError as error:
            self.ceiling = configuration().ceiling_in_force()
            raise UsageError(str(error)) from None

    def update_config(self, config: Config) -> None:
        """Show a refusal of `%config` as a line does, also of a setting that was removed. IPython would log it."""
        shell: Any = self.shell
        for name in settings.REMOVED.keys() & config[SECTION].keys():
            shell.show_usage_error(settings.removed(name, "`%config`"))
            return
        try:
            super().update_config(config)
        except UsageError as error:
            shell.show_usage_error(error)

    @observe("quiet")
    def _set_quiet(self, change: Mapping[str, Any]) -> None:
        import_hook.QUIET = change["new"]

    @observe("quiet_tensorflow")
    def _set_quiet_tensorflow(self, change: Mapping[str, Any]) -> None:
        configuration().quieten(on=change["new"])

    @observe("grace")
    def _set_grace(self, change: Mapping[str, Any]) -> None:
        configuration().set_grace(change["new"])

    @line_cell_magic
    def tf_gpu(self, line: str, cell: str | None = None) -> Any:
        """Set up TensorFlow's GPU memory before its first op, and show what holds it. `%tf_gpu help` explains how."""
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
        if first:
            from tfgpu_magic.machine.collector_start import prefetch

            prefetch()  # the GPUs are read while the words are imported
        lines = _lines()
        shell = self.shell
        assert shell is not None  # noqa: S101  # it was made with one
        self.watch.check()
        try:
            run = None if cell is None else lines.prepare(line, cell, shell, magic)
            answer = lines.run(line, magic) if run is None else None
        except TfGpuError as error:
            raise lines.usage_error(error, line, shell, magic) from None
        except KeyboardInterrupt as interrupt:
            if cell is None:  # its frames are ours
                shown = f"KeyboardInterrupt: %{magic} {line}"
                interrupt._render_traceback_ = lambda: [shown]  # type: ignore[attr-defined]
            raise
        if run is not None:
            return run()  # its errors are the cell's own
        # Not returned: it would be lost in a loop, or if it is not a cell's last line.
        if answer is not None:
            display(answer)  # type: ignore[no-untyped-call]  # IPython's
        return None
