"""One isolated call, of a function or a cell: from its options by its lease and its order to its answer."""

from __future__ import annotations

import contextlib
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tfgpu_magic.engine import engine
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground import TENSORFLOW, host, units
from tfgpu_magic.ground.host import here, shell
from tfgpu_magic.isolate.call import Call, CallAnswer
from tfgpu_magic.isolate.leasing import LEASES, Abandoned, Lease, LeaseRequest
from tfgpu_magic.isolate.process.inheritance import inheritance
from tfgpu_magic.isolate.process.order import Order
from tfgpu_magic.policy import parser
from tfgpu_magic.policy.policy import NOTHING, Memory, Policy, Reset
from tfgpu_magic.policy.process_state import showing

_noted: set[str] = set()
"""The notes of calls that have been shown: a loop of calls shows each once."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for each call.

    Attributes:
        policy: the policy for its TensorFlow, in addition to the policy of this process.
        gpus: how many GPUs it gets; None is one, if there is one, and 0 hides them all.
        timeout: seconds that it may take.
        frameworks: whether the policy is for TensorFlow, or for all frameworks.
    """

    policy: Policy = NOTHING
    gpus: int | None = None
    timeout: float | None = None
    frameworks: Literal["tensorflow", "all"] = "tensorflow"

    @property
    def for_all(self) -> Policy:
        """What is asked of every framework."""
        return self.policy if self.frameworks == "all" else NOTHING

    @classmethod
    def of(cls, policy: str | Policy | None, gpus: int | None, timeout: float | str | None) -> Options:
        """Check what is asked, as far as that can be done without a look at the GPUs.

        Raises:
            PolicyError: the policy, the number of GPUs or the time is not valid.
        """
        asked = parser.parse(policy) if isinstance(policy, str) else policy or NOTHING
        if gpus is not None and (not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 0):
            raise PolicyError(
                f"gpus={gpus!r} is no number of GPUs. Write how many each call gets: 1, or 0 to hide them."
            )
        if asked.choice is not None and asked.choice.picks:
            raise PolicyError(
                f"`{asked.choice}` is not for isolated calls: each gets the GPUs with most memory left, as many as "
                "gpus= says."
            )
        return cls(asked, gpus, None if timeout is None else units.seconds(timeout))


def run(
    call: Call,
    lease: AbstractContextManager[Lease],
    runner: str,
    *,
    for_all: Policy = NOTHING,
) -> CallAnswer:
    """Run a call with what a lease gives it, and return its answer.

    Args:
        call: the call.
        lease: what it may have; waited for.
        runner: what runs it in its process; see `Order`.
        for_all: what is asked of every framework in its process.

    Raises:
        Refused: its GPUs cannot be had.
        Abandoned: it is no longer wanted, and has not run.
        WorkerDied: its process ended without an answer.
        TimedOut: it took too long.
    """
    answer = None
    try:
        with lease as had:
            call.started = had.started
            work = order(had, runner, for_all=for_all)
            call.begun = True
            if call.stopped:
                raise Abandoned
            answer = call.run(work)
            if (note := answer.facts.note) and note not in _noted:
                _noted.add(note)
                call.sink.write("stderr", f"{note}\n")
    except (KeyboardInterrupt, OSError) as error:  # while the lease is given back
        if answer is None:
            raise
        call.interrupted_late |= isinstance(error, KeyboardInterrupt)
    finally:
        call.work = ()  # they may be large, and a future keeps its call
    return answer


def function_runner() -> str:
    """Return the runner of functions: if IPython runs here, with displays that are sent to this process."""
    return "tfgpu_magic.isolate." + ("process.worker:call" if shell() is None else "process.shell:call")


def leased(options: Options, call: Call) -> AbstractContextManager[Lease]:
    """Return a lease of GPUs that no other call of ours has, while the call is wanted; of none if none are asked."""
    if options.gpus != 0:
        return LEASES.lease(LeaseRequest(options.policy, options.gpus, lambda: not call.stopped))
    _, _, cpus = engine.inherited().then(options.policy).by_nature()  # there is no GPU for the other requests
    return contextlib.nullcontext(Lease(Policy(cpus), environment=showing(())))


def as_here(options: Options) -> AbstractContextManager[Lease]:
    """Return a lease of the GPUs as this process would see them; nothing is looked at, and nothing reserved."""
    return contextlib.nullcontext(Lease(engine.inherited().then(options.policy)))


def order(lease: Lease, runner: str, *, for_all: Policy = NOTHING) -> Order:
    """Return the order for a process that is set up as this one is, but for its policy.

    Args:
        lease: what it may have of the GPUs.
        runner: as in `Order`.
        for_all: what is asked of every framework in it, beside what is asked of each here.
    """
    others = NOTHING if lease.environment else _others(lease, for_all)  # that hides all GPUs
    own = others.for_framework(TENSORFLOW).memory
    asked = bool(for_all.requests) or not engine.current().configured  # of what is configured, no call is refused
    together = asked and bool(own) and own == lease.policy.memory  # TensorFlow is asked what all are, as one of them
    main, processes = sys.modules["__main__"], sys.modules.get("multiprocessing.process")
    file = getattr(main, "__file__", None)
    kept = (request for request in lease.policy if not isinstance(request, Memory))
    return Order(
        runner=runner,
        environment={**RUNTIME.environment_for_children(), **lease.environment},
        caller=host.caller or here(),
        directory=_directory(),
        inheritance=inheritance(),
        path=tuple(sys.path),
        arguments=tuple(sys.argv),
        apply=engine.apply,
        policy=Policy((*kept, *others.memory)) if together else lease.policy,
        frameworks="all" if together else "tensorflow",
        others=NOTHING if together else others,
        snapshot=lease.snapshot,
        key=None if processes is None else bytes(processes.current_process().authkey),
        package=getattr(main, "__package__", None),
        file=str(Path(file).absolute()) if isinstance(file, str) else None,
        module=getattr(getattr(main, "__spec__", None), "name", None),
        keras=_keras_settings(),
    )


def _directory() -> str:
    """Return the working directory, in which a call begins."""
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "The working directory was removed. Change to one that exists") from None


def _others(lease: Lease, for_all: Policy) -> Policy:
    """Return what the frameworks beside TensorFlow are asked in a call; its own words are as its lease has them."""
    words = Policy(tuple(request for request in for_all if isinstance(request, Memory | Reset)))
    if words.memory and not set(words.memory) <= set(lease.policy.memory):  # in bytes, of GPUs of its own
        words = Policy(lease.policy.memory)
    return engine.current().asked_of_all.then(words)


def _keras_settings() -> dict[str, Any]:
    """Return Keras' settings for a whole process; none where it is not imported, which nothing here does.

    Source: Keras 3, `keras.config` and `keras.dtype_policies`.
    """
    keras: Any = sys.modules.get("keras")
    found: dict[str, Any] = {}
    with contextlib.suppress(AttributeError):  # it is being imported in another thread
        found |= {name: getattr(keras.config, name)() for name in ("floatx", "epsilon", "image_data_format")}
        found["policy"] = keras.dtype_policies.serialize(keras.config.dtype_policy())
    return found
