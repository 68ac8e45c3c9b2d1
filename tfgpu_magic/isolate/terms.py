"""What is asked for isolated calls of functions, checked; and one such call, from its values to its value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tfgpu_magic import control, units
from tfgpu_magic.config import words
from tfgpu_magic.config.policy import NOTHING, Policy
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.host import shell
from tfgpu_magic.isolate import prepare
from tfgpu_magic.isolate.answer import Answer
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.ledger import LEDGER, Lease
from tfgpu_magic.isolate.screen import Here, Screen
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.isolate.values.pickling import Pickled, Reduce

_RUNNER = "tfgpu_magic.isolate.process.infant:call"
_RUNNER_WITH_DISPLAYS = "tfgpu_magic.isolate.cells.displayed:call"


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked for each call.

    Attributes:
        policy: what its TensorFlow is asked beyond what holds in this process.
        gpus: how many GPUs it gets; 0 hides them all, and None is one where there is one.
        timeout: seconds that it may take.
    """

    policy: Policy = NOTHING
    gpus: int | None = None
    timeout: float | None = None


def read(policy: str | Policy | None, gpus: int | None, timeout: float | str | None) -> Terms:
    """Check what is asked, as far as that can be done without a look at the GPUs.

    Raises:
        PolicyError: the words are no policy, the number is none of GPUs, or the time is no time.
    """
    asked = words.parse(policy) if isinstance(policy, str) else policy or NOTHING
    if gpus is not None and (not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 0):
        raise PolicyError(f"gpus={gpus!r} is no number of GPUs. Write how many each call gets: 1, or 0 to hide them.")
    if asked.choice is not None and asked.choice.picks:
        raise PolicyError(
            f"`{asked.choice}` is not for isolated calls: each gets the GPUs with most memory left, as many as gpus= "
            "says."
        )
    return Terms(asked, gpus, None if timeout is None else units.seconds(timeout))


def run(
    terms: Terms,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    leased: bool,
    reduce: Reduce | None = None,
) -> Any:
    """Call a function in a process of its own now, and return what it returns.

    Args:
        terms: what is asked for the call.
        function: what is called.
        args: with what.
        kwargs: and by name.
        leased: whether it gets GPUs by a lease; else it sees them as this process would, and nothing is looked at.
        reduce: a special way to pickle some objects.

    Raises:
        BaseException: what it raised.
        Unpicklable: the function, an argument or the result cannot be sent; it is named.
        Refused: its GPUs cannot be had.
        WorkerDied: its process ended without an answer.
        TimedOut: it took too long.
    """
    work = pickling.dump_call(function, args, kwargs, reduce=reduce)
    return answer(terms, pickling.name_of(function), work, leased=leased).value()


def answer(
    terms: Terms,
    name: str,
    work: Pickled,
    *,
    leased: bool,
    begun: Callable[[Call], None] = lambda _: None,
    wanted: Callable[[], bool] = lambda: True,
    screen: Screen | None = None,
    imported: frozenset[str] | None = None,
) -> Answer:
    """Run a call whose values are pickled already, and return what came of it.

    Args:
        terms: what is asked for the call.
        name: what people call its function.
        work: its values, as `pickling.dump_call` makes them.
        leased: as in `run`.
        begun: is told of the call before it runs; where that raises, it does not run.
        wanted: whether there is still need for it, while it waits for GPUs.
        screen: where its output goes; None is here.
        imported: which of `guard.ROOTS` its caller has imported; None where that is this process.

    Raises:
        Refused: its GPUs cannot be had.
        Abandoned: it is no longer wanted, and has not run.
        WorkerDied: its process ended without an answer.
        TimedOut: it took too long.
    """
    with _leased(terms, wanted) if leased else _as_here(terms) as lease:
        order = prepare.order(
            lease.policy,
            lease.snapshot,
            runner=_RUNNER if shell() is None else _RUNNER_WITH_DISPLAYS,
            hidden=terms.gpus == 0,
            imported=imported,
            settings={"name": name},
        )
        call = Call(order=order, work=work, timeout=terms.timeout, screen=screen or Here(), started=lease.started)
        del work  # the call lets go of it when it has sent it
        begun(call)
        return call.run()


def _leased(terms: Terms, wanted: Callable[[], bool]) -> contextlib.AbstractContextManager[Lease]:
    if terms.gpus != 0:
        return LEDGER.lease(terms.policy, terms.gpus, wanted=wanted)
    _, _, cpus = control.inherited().then(terms.policy).by_nature()  # there is no GPU for the others
    return contextlib.nullcontext(Lease(Policy(cpus)))


def _as_here(terms: Terms) -> contextlib.AbstractContextManager[Lease]:
    return contextlib.nullcontext(Lease(control.inherited().then(terms.policy)))
