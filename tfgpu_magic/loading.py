"""Loads the magics into a shell and takes them away: with the policy from outside, and what the first cell is told."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, TextIO

from IPython.core.interactiveshell import InteractiveShell

from tfgpu_magic.complete import matcher
from tfgpu_magic.config.flags import RESTART
from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.host import host, starting
from tfgpu_magic.isolate.preload import PRELOAD
from tfgpu_magic.magic import TfGpuMagics
from tfgpu_magic.monitor import claims

VARIABLE = "TFGPU_POLICY"
"""The environment variable with the policy for every kernel that loads the extension; it outweighs configuration,
also where it is empty, which is no policy."""


if __name__ not in PRELOAD:
    PRELOAD.append(__name__)  # an isolated cell has the magics too


def load(shell: InteractiveShell) -> None:
    """Register the magics with a shell, and apply the policy that the environment or the configuration gives."""
    magics = attach(shell)
    if host() == "cell":
        return  # whose notebook's policy came along, unless the cell says another
    if magics.warm:
        from tfgpu_magic.isolate.pool import FORK_SERVER

        FORK_SERVER.process()
    if given := os.environ.get(VARIABLE, magics.policy):
        from tfgpu_magic import administrator
        from tfgpu_magic.config.runtime import RUNTIME

        if RUNTIME.plan is None:  # else it is loaded again, and what was said meanwhile holds
            where = f"${VARIABLE}" if VARIABLE in os.environ else "the configuration"
            administrator.stand(given, where, functools.partial(_warn, shell))


def attach(shell: InteractiveShell) -> TfGpuMagics:
    """Register the magics with a shell, and have its process report of itself."""
    magics = TfGpuMagics(shell)
    shell.register_magics(magics)
    shell.Completer.custom_matchers.append(matcher)
    magics.watch.start()
    magics.reporter.start()
    claims.announced_by(magics.reporter.announce)
    return magics


def unload(shell: InteractiveShell) -> None:
    """Take the magics away again; what they set stays, and calls that run go on."""
    magics = shell.magics_manager.registry.pop(TfGpuMagics.__name__, None)
    if magics is not None:
        magics.watch.stop()
        magics.reporter.stop()
        claims.announced_by(None)
        if magics in shell.configurables:
            shell.configurables.remove(magics)  # %config would find this one and not the next
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop("tf_gpu", None)
        shell.Completer.custom_matchers.remove(matcher)
    used = sys.modules.get("tfgpu_magic.isolate.pool")
    if used is not None and host() != "cell":  # whose own calls may outlive it
        used.FORK_SERVER.stop()  # 600 MB, which the next call, if any, has anew


def resume(words: str) -> None:
    """Load the extension in a kernel that was restarted for a policy, apply that, and tell of it in the first cell."""
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "tfgpu_magic")
    shell.magics_manager.registry[TfGpuMagics.__name__].reporter.rest()  # this is said in no cell
    from tfgpu_magic import control
    from tfgpu_magic.config.runtime import current_stage

    try:
        # The words are whole: what configuration says in this kernel is not to be added to them.
        plan = control.apply(words if words == "default" else f"default; {words}")
    except TfGpuError as error:
        _warn(shell, f"tfgpu_magic: `{words}`, asked for with {RESTART}, is NOT in force.\n{error}")
    else:
        _tell_later(shell, f"tfgpu_magic: after the restart, {control.standing(plan, current_stage())}", sys.stdout)


def _warn(shell: InteractiveShell, text: str) -> None:
    """Tell what could not be had: in the cell that runs, or in the first one, and in the log of the kernel's server."""
    if hasattr(shell, "kernel"):  # elsewhere the log is the same terminal
        shell.log.warning("%s", text.replace("\n", " "))
    if starting(shell):
        _tell_later(shell, text, sys.stderr)
    else:
        print(text, file=sys.stderr, flush=True)


def _tell_later(shell: InteractiveShell, text: str, stream: TextIO) -> None:
    """Tell it in the first cell: while none is running, nobody reads anything."""

    def tell(_: Any) -> None:
        shell.events.unregister("pre_run_cell", tell)
        print(text, file=stream)

    shell.events.register("pre_run_cell", tell)
