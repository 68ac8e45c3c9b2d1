"""One isolated call, of a function or a cell, from its lease to its answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from tfgpu_magic import control
from tfgpu_magic.config import visible
from tfgpu_magic.config.policy import Policy
from tfgpu_magic.host import shell
from tfgpu_magic.isolate import prepare
from tfgpu_magic.isolate.answer import Answer
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.lease import Lease
from tfgpu_magic.isolate.leases import LEASES
from tfgpu_magic.isolate.options import Options

_FUNCTION = "tfgpu_magic.isolate.process.worker:call"
_FUNCTION_WITH_DISPLAYS = "tfgpu_magic.isolate.cells.call_displays:call"


def run(
    call: Call,
    lease: AbstractContextManager[Lease],
    runner: str,
    *,
    imported: frozenset[str] | None = None,
    begun: Callable[[Call], None] = lambda _: None,
) -> Answer:
    """Run a call with what a lease gives it, and return what came of it.

    Args:
        call: the call.
        lease: what it may have; waited for.
        runner: what runs it in its process; see `Order`.
        imported: which of `guard.ROOTS` its caller has imported; None where that is this process.
        begun: is told of the call before it runs; where that raises, it does not run.

    Raises:
        Refused: its GPUs cannot be had.
        Abandoned: it is no longer wanted, and has not run.
        WorkerDied: its process ended without an answer.
        TimedOut: it took too long.
    """
    with lease as had:
        had.take(call)
        order = prepare.order(had, runner=runner, imported=imported)
        begun(call)
        return call.run(order)


def function() -> str:
    """The runner of functions: where IPython runs, what they display comes home."""
    return _FUNCTION if shell() is None else _FUNCTION_WITH_DISPLAYS


def leased(options: Options, wanted: Callable[[], bool] = lambda: True) -> AbstractContextManager[Lease]:
    """GPUs that no other call of ours has; none, where none are asked for.

    Args:
        options: what is asked.
        wanted: whether there is still need for it, while it waits.
    """
    if options.gpus != 0:
        return LEASES.lease(options.policy, options.gpus, wanted=wanted)
    _, _, cpus = control.inherited().then(options.policy).by_nature()  # there is no GPU for the others
    return contextlib.nullcontext(Lease(Policy(cpus), environment=visible.variable(())))


def as_here(options: Options) -> AbstractContextManager[Lease]:
    """The GPUs as this process would see them; nothing is looked at, and nothing reserved."""
    return contextlib.nullcontext(Lease(control.inherited().then(options.policy)))
