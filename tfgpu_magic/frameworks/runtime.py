"""What was set in this process, with the means to undo it: ONLY this writes environment variables.

TensorFlow's own settings are in `tensorflow.devices`.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic import policy
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import NAMES, cuda, import_hook
from tfgpu_magic.frameworks.tensorflow import calls, devices
from tfgpu_magic.frameworks.tensorflow.devices import (
    current_stage,
    has_list,
    is_frozen,
    is_importing,
    old_version,
    tensorflow,
    was_forked,
)
from tfgpu_magic.ground.message import paragraph
from tfgpu_magic.ground.process_kind import process_kind
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.policy import CEILING, process_state
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.policy import Policy
from tfgpu_magic.policy.process_state import ALLOCATOR, ASYNC, DEVICES, GROWTH, VARIABLES, ProcessState, Stage

if TYPE_CHECKING:
    from tfgpu_magic.policy.ceiling import Ceiling

NEIGHBOURS = (*(name for name in NAMES if name != "tensorflow"), "cupy", "numba.cuda", "pycuda")
"""Libraries that may hold a CUDA context of their own in a kernel."""


class EnvironmentChanges:
    """A record of the variables that were written; a value that other code has changed since counts as its own."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[str | None, str | None]] = {}  # before us, and by us

    def users_variables(self) -> dict[str, str]:
        """Return those of `VARIABLES` that are set, with their values without our changes."""
        found = {name: self._before(name) for name in VARIABLES}
        return {name: value for name, value in found.items() if value is not None}

    def original(self) -> dict[str, str]:
        """Return a copy of all variables without our changes."""
        kept = {name: value for name, value in environment().items() if name not in self._written}
        theirs = {name: self._before(name) for name in self._written}
        return kept | {name: value for name, value in theirs.items() if value is not None}

    def write(self, wanted: Mapping[str, str | None]) -> None:
        """Set the wanted variables, None to remove one, and restore every other variable that was changed before."""
        for name in {*wanted, *self._written}:
            before = self._before(name)
            value = wanted.get(name, before)
            self._written[name] = (before, value)
            export(name, value)

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Restore everything as it was if the block raises anything."""
        before, written = environment(), dict(self._written)
        try:
            yield
        except BaseException:
            for name in {*written, *self._written}:
                export(name, before.get(name))
            self._written = written
            raise

    def _before(self, name: str) -> str | None:
        now = os.environ.get(name)
        before, ours = self._written.get(name, (now, now))
        return before if now == ours else now


def environment() -> dict[str, str]:
    """Return a copy of all variables; it is made again if another thread removes one meanwhile."""
    while True:
        with suppress(KeyError):
            return dict(os.environ)


_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""With 2, TensorFlow logs errors only. Source: TensorFlow, `tsl/platform/default/logging.cc`."""

_quietened = EnvironmentChanges()


def set_log_level(*, on: bool) -> None:
    """Set TensorFlow's log level: only errors, or all; a level that other code has set is left alone."""
    _quietened.write({_LOG_LEVEL: "2"} if on and _LOG_LEVEL not in _quietened.original() else {})


def adopt(environment: Mapping[str, str]) -> None:
    """Make another process's environment this one's."""
    for name in {*os.environ, *environment}:
        if os.environ.get(name) != environment.get(name):
            export(name, environment.get(name))


def export(name: str, value: str | None) -> None:
    """Set a variable for this process and for those that it starts; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


class Runtime:
    """The record of what was set in this process, with the means to undo it. There is one instance, `RUNTIME`.

    Attributes:
        plan: the plan in force or waiting for TensorFlow; None while nothing was asked.
        broken: TensorFlow failed to make its context for lack of memory.
        source: where a configured policy comes from, as a phrase; empty while nothing is configured.
        differs_by_driver: what is not as planned by the driver's figures, a phrase for each GPU's UUID.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.broken = False
        self.source = ""
        self.differs_by_driver: dict[str, str] = {}
        self._fixed: tuple[object, tuple[str, ...]] | None = None
        self._said_of: set[tuple[Policy, bool]] = set()
        self._ceiling: Ceiling | None = None
        self._has_read_ceiling = False
        self._changes = EnvironmentChanges()
        self._answers: dict[
            tuple[object, ...], tuple[str, ...]
        ] = {}  # CUDA's order does not change while this process runs

    @property
    def current(self) -> Plan:
        """The plan in force or waiting; where nothing was asked, one that does nothing."""
        return self.plan or Plan()

    @property
    def policy_noun(self) -> str:
        """The policy in force as a subject: who has set it is said where that is not the user."""
        plan = self.current
        if not (plan.configured and self.source):
            return f"`{plan.asked}`"
        return f"`{plan.asked}`, from {self.source},"

    @property
    def ceiling(self) -> Ceiling | None:
        """The most that each framework here may take of each GPU; None without one. It can be lowered, and not raised.

        The variable and the administrator's file count as they are when this is first asked.
        """
        self.read_ceiling()
        return self._ceiling

    def read_ceiling(self) -> None:
        """Read the variable and the administrator's file, if that was not done before."""
        if not self._has_read_ceiling:
            self._has_read_ceiling = True
            self.lower_ceiling([(os.environ.get(CEILING, "").strip(), f"${CEILING}")])
            if os.path.lexists(policy.FILE):
                from tfgpu_magic.policy import settings  # few machines have the file

                file = settings.of_file()
                self.lower_ceiling(file.ceilings, file.unread)

    def lower_ceiling(self, texts: Iterable[tuple[str, str]], unread: str = "") -> None:
        """Hold this process, and what it starts, under more ceilings as well.

        Args:
            texts: the ceilings with their sources, as `ceiling.safe` has them; an empty text is none.
            unread: why another one cannot be read, so that no GPU may be used; empty where there is none.
        """
        texts = [one for one in texts if one[0]]
        if not (texts or unread):
            return
        from tfgpu_magic.policy.ceiling import Ceiling, safe  # few processes have one

        given = [safe(*one) for one in texts] + [Ceiling((), (paragraph([unread]),))] * bool(unread)
        self._ceiling = functools.reduce(Ceiling.lower_of, given if self.ceiling is None else [self.ceiling, *given])
        export(CEILING, str(self._ceiling))

    @property
    def half_started(self) -> bool:
        """Whether TensorFlow has begun to use CUDA, and its first op was not done yet."""
        return current_stage() in (Stage.LISTED, Stage.POISONED)

    def set_other_policy(self, others: Policy) -> None:
        """Record what the frameworks beside TensorFlow are asked: it is in force with the next plan that is applied."""
        self.plan = replace(self.current, asked_of_all=others)

    def observe(self, gpus: Sequence[Gpu], *, timeout: float = cuda.CUDA_TIMEOUT) -> ProcessState:
        """Return the state of this process on a machine with these GPUs. Nothing is changed or started.

        Args:
            gpus: the machine's GPUs.
            timeout: seconds to wait for CUDA's order of GPUs, where only CUDA has it.
        """
        reached, fixed = current_stage(), is_frozen()
        outside = self._changes.users_variables()
        environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        shown = cuda.visible_gpus() if fixed else self._predict(gpus, outside, timeout)
        ours = environment.get(DEVICES) != outside.get(DEVICES)
        sees, theirs = devices.users_settings()
        return ProcessState(
            stage=reached,
            environment=environment,
            outside=outside,
            frozen=fixed,
            shown=shown,
            given=self._predict(gpus, outside, timeout) if fixed and ours else shown,
            tensorflow_sees=sees,
            skipped=tuple(uuid for uuid in shown or () if uuid not in theirs.growth) if has_list() else (),
            growth=theirs.growth,
            limits={uuid: parts for uuid, parts in theirs.limits.items() if parts},
            neighbour=_other_library() if cuda.gpus_in_use() and reached is not Stage.READY else None,
            forked=was_forked(),
            asked=self.current.asked,
            settled=self.current.settled,
            changed=self.changed_settings(),
            since=devices.since,
            broken=self.broken and reached is not Stage.READY,
            old=old_version(),
            host=process_kind(),
            keras=devices.other_backend(),
            ceiling=self.ceiling,
            plan=self.plan,
        )

    def apply(self, plan: Plan) -> None:
        """Apply a plan, whole or not at all.

        Where TensorFlow's own API is needed and TensorFlow is not imported yet, the rest waits: call
        `devices.configure` once it is.

        Raises:
            Refused: TensorFlow rejected it; everything is as it was.
        """
        before = self.current
        plan = self.with_other_frameworks(plan)
        differs = (plan.settled, plan.devices) != (before.settled, before.devices)
        if plan.judged and plan.needs_tensorflow and differs and is_importing():
            raise Refused("TensorFlow is being imported at this moment; say it again when that is done.")
        with self._changes.undone_on_error():
            self._changes.write(plan.variables)
            if tensorflow() is not None:
                devices.configure(plan.tensorflow)
        self.plan = plan
        self.protect_settings()

    def environment_for_children(self) -> dict[str, str]:
        """Return the environment for child processes: this process's, without what this class changed; and its ceiling.

        The ceiling is the one in force, whatever the variable has become.
        """
        held = {} if self.ceiling is None else {CEILING: str(self.ceiling)}
        return self._changes.original() | held

    def write(self, plan: Plan) -> None:
        """Apply only a plan's variables; TensorFlow's own settings stay as they are."""
        plan = self.with_other_frameworks(plan)
        self._changes.write(plan.variables)
        self.plan = plan

    def with_other_frameworks(self, plan: Plan) -> Plan:
        """Return a plan with what holds for the other frameworks, of which it may say nothing."""
        now = self.current
        return replace(plan, asked_of_all=now.asked_of_all, parts=now.parts) if plan.parts is None else plan

    def protect_settings(self) -> None:
        """Make TensorFlow's own calls respect the plan in force, if TensorFlow is imported."""
        if self.plan is not None:
            calls.patch_calls(self._planned_growth)

    def _planned_growth(self, enable: bool | None) -> bool | None:
        """Return whether memory grows by the plan in force; None where none decides that, or it was undone.

        Args:
            enable: what other code asks for; where that is not so, this is said once.
        """
        plan = self.plan
        if plan is None or plan.growth is None or not plan.judged or self._changed_by_others():
            return None
        if enable not in (None, plan.growth) and (plan.asked, plan.growth) not in self._said_of:
            self._said_of.add((plan.asked, plan.growth))
            import_hook.notify(self._ignored_note(plan))
        return plan.growth

    def _ignored_note(self, plan: Plan) -> str:
        """Return a note that `set_memory_growth` changes nothing, and what to use instead."""
        free = ", ".join(device.gpu.label for device in plan.devices if not device.limits)
        rest = f", and all that is free of GPU {free}" if free and plan.limited else ""
        limit = f"the limit is taken at once{rest}, unless the policy has `--grow`"
        takes = "memory grows" if plan.growth else limit if plan.limited else "all that is free is taken"
        return f"{self.policy_noun} is in force, so set_memory_growth changes nothing: {takes}."

    def changed_settings(self) -> tuple[str, ...]:
        """Return what differs from the plan that is in force, a phrase each."""
        return self._changed_by_others() + tuple(self.differs_by_driver.values())

    def _changed_by_others(self) -> tuple[str, ...]:
        """Return what other code has changed since; what TensorFlow began with stays so."""
        plan = self.plan
        if plan is None or was_forked():
            return ()
        if current_stage() is not Stage.READY:
            return self._differences(plan)
        begun = (plan.asked, id(devices.eager_context()))
        if self._fixed is None or self._fixed[0] != begun:
            self._fixed = begun, self._differences(plan)
        return self._fixed[1]

    def _differences(self, plan: Plan) -> tuple[str, ...]:
        """Return what differs now from each setting that a plan makes, a phrase each."""
        now, stage = os.environ.get, current_stage()
        # The latter two are left alone by a plan where they do nothing.
        undoing = {GROWTH: "true"} if plan.growth is False else {}
        undoing |= {ALLOCATOR: ASYNC} if plan.limited else {}
        wrong = [name for name, value in plan.variables.items() if now(name) != value]
        wrong += [name for name, value in undoing.items() if name not in plan.variables and now(name) == value]
        planned = {str(device.gpu.uuid): device for device in plan.devices}
        if DEVICES in wrong and has_list() and not plan.blind and set(devices.read_settings().visible) == set(planned):
            wrong.remove(DEVICES)  # it is read once: what the list has counts
        found = [f"{name} is {'unset' if now(name) is None else repr(now(name))}" for name in wrong]
        theirs = calls.asked_by_policy or others_use_cuda() or not devices.had_session()  # else it is no proof
        if stage is Stage.POISONED and plan.limited and not theirs:
            found.append("TensorFlow's allocators were made before its first op, with options of their own")
        if not has_list() or (plan.growth is plan.cpus is None and not plan.show and DEVICES not in plan.environment):
            return tuple(found)
        settings, real = devices.read_settings(), devices.logical()
        shows = plan.show or DEVICES in plan.environment
        if shows and not plan.blind and settings.growth and set(settings.visible) != set(planned):
            found.append("TensorFlow sees other GPUs")
        for uuid, device in planned.items() if plan.growth is not None else ():
            limits = settings.limits.get(uuid)
            if device.limits and real:  # without one, what TensorFlow calls the limit is what it found free
                limits = tuple(gpu.limit or 0 for gpu in real[uuid]) if uuid in real else None
            if limits is not None and not alike(limits, device.limits):
                size = " + ".join(map(rounded, limits)) or "nothing"
                found.append(f"the limit of GPU {device.gpu.label} is {size}")
        cpus = len(settings.parts.get(devices.CPU, ()))
        if plan.cpus not in (None, cpus):
            found.append(f"the CPU is divided into {cpus}")
        return tuple(found)

    def _predict(self, gpus: Sequence[Gpu], outside: dict[str, str], timeout: float) -> tuple[str, ...] | None:
        """Return what CUDA would show this process without our changes; where GPUs differ, a child asks CUDA."""
        shown = process_state.predict_shown(gpus, outside) if gpus else ()
        if shown is not None:
            return shown
        question = (*sorted(outside.items()), *(str(gpu.uuid) for gpu in gpus))
        if question not in self._answers:
            answer = cuda.visible_gpus_with(self._changes.original(), timeout=timeout)
            if answer is None:
                return None
            self._answers[question] = answer
        return self._answers[question]


RUNTIME = Runtime()


def others_use_cuda() -> bool:
    """Return whether another library of this process may have made a CUDA context; TensorFlow imports JAX itself."""
    jax = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    return bool(jax) or any(name in sys.modules for name in NEIGHBOURS if name != "jax")


def alike(some: Sequence[int], others: Sequence[int], within: float = 0.01) -> bool:
    """Return whether limits differ by no more than a rounding: a fraction of a GPU is not exact."""
    return len(some) == len(others) and all(map(functools.partial(math.isclose, rel_tol=within), some, others))


def _other_library() -> str:
    return next((name for name in NEIGHBOURS if name in sys.modules), "")
