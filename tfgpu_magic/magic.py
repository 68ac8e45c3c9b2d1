"""`%tf_gpu`: words in, calls out, nothing else. What the words need is imported when they are said."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display
from traitlets import Bool, Float, Unicode, observe

from tfgpu_magic.config import grammar
from tfgpu_magic.config.watch import CellWatch
from tfgpu_magic.errors import PolicyError, TfGpuError, TooLate
from tfgpu_magic.host import host, starting
from tfgpu_magic.monitor.look import PATIENCE, Looking
from tfgpu_magic.reporter import Reporter

if TYPE_CHECKING:
    from tfgpu_magic.views.jobs import Jobs
    from tfgpu_magic.views.outcome import Code, Outcome
    from tfgpu_magic.views.status import Status
    from tfgpu_magic.views.widget import MemoryTable


@magics_class
class TfGpuMagics(Magics):
    """The magics. An administrator sets a policy for all with ``c.TfGpuMagics.policy = "growth"``."""

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
        self.watch = CellWatch(shell)
        self.reporter = Reporter(shell, running=not starting(shell))
        self.observe(self._on_policy, "policy")  # what configuration has set by now is no change

    def _on_policy(self, change: Any) -> None:
        """Have `%config TfGpuMagics.policy = ...` do what `%tf_gpu` would; it is said here, so it is refused here."""
        try:
            display(_apply(f"default; {change['new']}" if change["new"] else "default"))  # type: ignore[no-untyped-call]
        except TfGpuError as error:
            raise UsageError(str(error)) from None

    @observe("grace")
    def _set_grace(self, change: Mapping[str, Any]) -> None:
        from tfgpu_magic.isolate import call

        call.GRACE = change["new"]

    @line_cell_magic
    def tf_gpu(self, line: str, cell: str | None = None) -> Any:  # noqa: D102  # made from the grammar, below
        self.watch.check()
        try:
            run = None if cell is None else _isolated(self.shell, line, cell)
            answer = _answer(line) if run is None else None
        except TfGpuError as error:
            raise UsageError(str(error)) from None  # IPython shows it without a traceback, and stops "run all"
        if run is not None:
            return run()  # whose errors are the cell's own
        # Not returned: it would be lost in a loop, or where it is not a cell's last line.
        if answer is not None:
            display(answer)  # type: ignore[no-untyped-call]  # IPython's
        return None

    tf_gpu.__doc__ = f"""Set TensorFlow's GPU memory up before its first op, and see who holds what.

Usage: %tf_gpu WORDS [{grammar.RESTART}]
       %%tf_gpu isolate [-i NAMES] [-o NAMES] [--gpus N] [--timeout TIME]
                        [--detach] [WORDS]

{grammar.usage()}

Several at once: `%tf_gpu pick 1; limit 2GiB`. GPU numbers are nvidia-smi's.
Later words replace earlier ones for the GPUs that they name. Sizes are in KiB
MiB GiB TiB, kB MB GB TB, or % of a GPU's memory. A limit is TensorFlow's pool:
CUDA's context, some hundred MiB, comes on top of it.

When TensorFlow uses the GPUs already, {grammar.RESTART} restarts this kernel and
applies the words in the new one.

Above a cell, `%%tf_gpu isolate` runs it in a process of its own. The names that
it reads are sent along, those after -o are brought back, and all its GPU memory
comes back. WORDS are a policy for that process; `--limit 2GiB` is `limit 2GiB`.

{grammar.flags()}
"""


def _isolated(shell: Any, line: str, cell: str) -> Callable[[], Any]:
    """Get a cell ready to run in a process of its own; what is returned runs it, and gives its value."""
    name, _, rest = line.partition("#")[0].strip().partition(" ")
    if name.lower() != "isolate":
        meant = f" {name!r} stands in a line of its own, with one %." if name else ""
        raise PolicyError(f"Above a cell, only `%%tf_gpu {grammar.ISOLATE}` can stand.{meant} `%tf_gpu?` explains it.")
    from tfgpu_magic.isolate.cells import words
    from tfgpu_magic.isolate.cells.cell import Cell
    from tfgpu_magic.isolate.cells.jobs import Job
    from tfgpu_magic.isolate.screen import Here, below

    asked = words.parse(rest)
    made = Cell(shell, asked, cell, below(shell) if asked.detach else Here())
    return functools.partial(Job, made) if asked.detach else made.run


def _jobs(rest: str) -> Jobs:
    """List the jobs, once the one that is to be stopped is told so."""
    from tfgpu_magic.isolate import listed
    from tfgpu_magic.monitor.look import look
    from tfgpu_magic.views.jobs import Jobs

    if rest:
        listed.stop(rest)
    return Jobs(tuple(listed.standings()), look())


def _warm(rest: str) -> None:
    """Get ready for isolated cells, without waiting for it."""
    from tfgpu_magic.isolate.cells import words
    from tfgpu_magic.isolate.pool import KEEPER

    if rest != words.WARM:
        raise PolicyError(f"`isolate` stands above a cell: {words.usage()}")
    KEEPER.nursery()
    print("Getting ready for isolated cells: TensorFlow is being imported for them.")


def _answer(line: str) -> Status | Outcome | Code | MemoryTable | Jobs | None:
    tokens = line.partition("#")[0].split()
    again = grammar.RESTART in tokens
    asked = " ".join(token for token in tokens if token != grammar.RESTART)
    name = re.split(r"[\s;]", asked, maxsplit=1)[0]
    rest = asked.removeprefix(name).strip()
    name = "help" if name.lower() in ("--help", "-h", "?") else name
    _check(name, rest, again=again)
    match name.lower():
        case "" | "status":
            from tfgpu_magic import control

            return control.status()
        case "top":
            return _top()
        case "help":
            from tfgpu_magic.views.outcome import Code

            return Code(str(TfGpuMagics.tf_gpu.__doc__), "text")
        case "isolate":
            _warm(rest)
            return None
        case "jobs":
            return _jobs(rest)
        case "plan" | "code" | "env" as what:
            return _tell(what, rest)
        case _:
            return _apply(asked, again=again)


def _check(name: str, rest: str, *, again: bool) -> None:
    """Refuse a first word that is none, and what cannot stand beside one.

    Raises:
        PolicyError: it cannot be; the error says what could.
    """
    if again and not name:
        raise PolicyError(f"{grammar.RESTART} of what? Write the words before it: `%tf_gpu limit 2GiB --restart`.")
    word = grammar.find(name or "status")
    if again and word in grammar.OTHER_WORDS:
        raise PolicyError(f"`{word.name}` sets nothing, so {grammar.RESTART} has no place beside it.")
    if rest and word.name in ("status", "top", "help"):
        raise PolicyError(f"`{word.name}` stands alone; {rest!r} is too much. `%tf_gpu?` explains the words.")


def _top() -> MemoryTable | Status:
    """The live table; where nothing draws it, as in a terminal, one look."""
    if host() != "kernel":
        from tfgpu_magic import control

        return control.status().once()
    from tfgpu_magic.views.widget import MemoryTable

    return MemoryTable()


def _tell(what: str, policy: str) -> Outcome | Code:
    """Say what a policy would do, or without one what is done, in the form that is wanted."""
    from tfgpu_magic import control
    from tfgpu_magic.config import script
    from tfgpu_magic.config.runtime import current_stage
    from tfgpu_magic.views.outcome import Code, Outcome

    if what == "plan":
        if not policy:
            return Outcome(control.waiting(), control.standing(control.current(), current_stage()))
        try:
            return Outcome(plan := control.plan(policy), f"`{str(plan.asked) or policy}` would do this:")
        except TooLate as error:
            plan = control.foresee(policy)
            after = f"After a restart, `{str(plan.asked) or policy}` would do this:"
            return Outcome(plan, f"{error.reason} {after}")
    plan = control.sketch(policy) if policy else control.decided()
    if what == "env":
        return Code(script.shell(plan), "sh")
    return Code(script.python(plan, () if policy else control.order()), "python")


def _apply(policy: str, *, again: bool = False) -> Outcome:
    """Apply a policy here; or if it is too late, and that is wanted, in a new kernel."""
    looking = Looking(PATIENCE)  # the GPUs are looked at while the rest of the house is imported
    from tfgpu_magic import administrator, control
    from tfgpu_magic.config.runtime import current_stage
    from tfgpu_magic.views.outcome import Outcome

    try:
        plan = control.apply(policy, see=lambda: looking.result(administrator.slow))
    except TooLate:
        if not again:
            raise
        asked = control.foresee(policy).asked  # a process is not given up for words that cannot be had
        if host() != "kernel":
            raise
    else:
        return Outcome(plan, control.standing(plan, current_stage()))
    from tfgpu_magic.restart import restart

    return restart(str(asked) or "default")
