"""Loads the magics into a shell and removes them; it also has `configuration` enforce what is configured."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.host import host, preload, starting
from tfgpu_magic.host import magics as magics_of
from tfgpu_magic.notebook.complete import matcher
from tfgpu_magic.notebook.magic import MAGICS, TfGpuMagics, configuration
from tfgpu_magic.policy import CEILING, POLICY, settings
from tfgpu_magic.policy.settings import SECTION

_ENFORCED = {"policy", "policies", "ceiling", "ceilings"}

if __name__ not in preload:
    preload.append(__name__)  # an isolated cell has the magics too


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Load the magics; ``%load_ext tfgpu_magic`` calls this.

    It also applies the policy that the environment or the configuration gives.
    """
    magics = attach(shell)
    if host() == "cell":
        return
    if magics.warm:
        configuration().warm()
    try:
        if magics.parking != "off":
            configuration().park(magics.parking)
    except TfGpuError as error:
        magics.parking = "off"
        _warn(shell, f"tfgpu_magic: {error} Parking is off.")
    if "google.colab" in sys.modules:
        words: tuple[str, str] | None = configuration().kept_words()  # only there any are kept for the next kernel
        if words is not None:
            _apply(shell, *words, _print)


def attach(shell: InteractiveShell) -> TfGpuMagics:
    """Enforce what is configured, register the magics with a shell, and start the reporter of its process."""
    magics = TfGpuMagics(shell, config=Config({SECTION: _enforced(shell)}))
    shell.register_magics(magics)
    shell.Completer.custom_matchers.append(matcher)
    shell.input_transformers_cleanup.append(_measured)
    for watch in magics.watches:
        watch.start()
    return magics


def _enforced(shell: InteractiveShell) -> dict[str, Any]:
    """Hold this process to what is configured; return all settings that can be used, with the ceiling that holds."""
    given, file = settings.of_configuration(shell.config, _where(shell)), settings.of_file()
    values = {**file.values, **given.values}
    if host() == "cell":
        return values  # its notebook's policy came along, unless the cell asks for another
    for flaw in (*file.flaws, *given.flaws):
        _warn(shell, f"tfgpu_magic: {flaw}")
    configured = _ENFORCED & values.keys() or given.unread or file.unread
    if configured or not os.environ.keys().isdisjoint({POLICY, CEILING}):
        # So that the setting shows what holds, and that can be lowered.
        values["ceiling"] = configuration().enforce(given, file, functools.partial(_warn, shell))
    return values


def _where(shell: InteractiveShell) -> str:
    """Return what IPython's configuration is called: with the files that name the magics, where they can be told."""
    app: Any = shell  # its parent is an application, or a kernel whose parent is one
    while app is not None and not hasattr(app, "loaded_config_files"):
        app = app.parent
    files = [file for file in ([] if app is None else app.loaded_config_files) if _names_us(file)]
    return f"{settings.CONFIGURATION} ({' and '.join(files)})" if files else settings.CONFIGURATION


def _names_us(file: str) -> bool:
    try:
        return "tfgpu" in Path(file).read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return False


def _measured(lines: list[str]) -> list[str]:
    """Return a cell's lines where `%%tf_gpu measure` above it is a call of its own: the cell runs as any other."""
    found = re.match(r"%%(tf_gpu|gpu)[ \t]+(measure\b.*)", lines[0]) if lines else None
    if found is None:
        return lines
    return [f"get_ipython().run_cell_magic({found[1]!r}, {found[2].strip()!r}, '\\n')\n", *lines[1:]]


_measured.has_side_effects = True  # type: ignore[attr-defined]  # by which IPython asks for more lines, as of any magic


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics; ``%unload_ext tfgpu_magic`` calls this. What they have set stays set; calls that run go on."""
    magics = shell.magics_manager.registry.pop(TfGpuMagics.__name__, None)
    if magics is not None:
        for watch in magics.watches:
            watch.stop()
        magics.park_itself(None)
        if magics in shell.configurables:
            shell.configurables.remove(magics)  # %config would find this instance and not the next one
        for kind in ("line", "cell"):
            for name in MAGICS:
                shell.magics_manager.magics[kind].pop(name, None)
        shell.Completer.custom_matchers.remove(matcher)
        shell.input_transformers_cleanup.remove(_measured)
    tracking = sys.modules.get("tfgpu_magic.insight.tracker")
    if tracking is not None:
        tracking.stop()
    used = sys.modules.get("tfgpu_magic.isolate.process.forkserver_client")
    if used is not None and host() != "cell":  # the isolated calls of a cell may outlive the extension
        used.FORK_SERVER.stop()  # it holds 600 MB, and the next call, if any, starts another


def _resume(words: str, others: str = "") -> None:
    """Load the extension in a kernel that was restarted for a policy, apply it, and report on it in the first cell.

    Args:
        words: the policy for TensorFlow.
        others: that for the other frameworks; empty where nothing is asked of them.
    """
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "tfgpu_magic")
    magics_of(shell).reporter.note_idle()  # this runs in no cell
    _apply(shell, words, others, _print_later)  # what this request prints is seen by nobody


def _apply(
    shell: InteractiveShell, words: str, others: str, say: Callable[[InteractiveShell, str, TextIO], None]
) -> None:
    """Apply the words of a restart, and report on them."""
    try:
        said = configuration().after_restart(words, others)
    except TfGpuError as error:
        _warn(shell, f"tfgpu_magic: {error}")
    else:
        say(shell, f"tfgpu_magic: after the restart, {said}", sys.stdout)


def _warn(shell: InteractiveShell, text: str) -> None:
    """Show a warning in the cell that runs, or in the first one, and write it to the log of the kernel's server."""
    if hasattr(shell, "kernel"):  # in a terminal the log would be shown in the same place
        shell.log.warning("%s", text.replace("\n", " "))
    _print(shell, text, sys.stderr)


def _print(shell: InteractiveShell, text: str, stream: TextIO) -> None:
    """Print a text in the cell that runs, or in the first one."""
    if starting(shell):
        _print_later(shell, text, stream)
    else:
        print(text, file=stream, flush=True)


def _print_later(shell: InteractiveShell, text: str, stream: TextIO) -> None:
    """Print a text in the next cell: while none is running, no output is shown."""

    def show(_: Any) -> None:
        shell.events.unregister("pre_run_cell", show)
        print(text, file=stream)

    shell.events.register("pre_run_cell", show)
