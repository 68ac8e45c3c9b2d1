"""The frameworks that may take GPU memory in this process: a module each, and an entry in `FRAMEWORKS`.

They are queried only where the user's own code has imported and started them: nothing here imports or starts one.
"""

from __future__ import annotations

import contextlib
import traceback
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tfgpu_magic.config import cuda
from tfgpu_magic.config.frameworks import NAMES
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.runtime import current_stage
from tfgpu_magic.frameworks.jax import Jax
from tfgpu_magic.frameworks.peaks import Counter, Counting, SharedPeaks
from tfgpu_magic.frameworks.shortage import DRIVERS, Shortage
from tfgpu_magic.frameworks.tensorflow import TensorFlow
from tfgpu_magic.frameworks.torch import Torch
from tfgpu_magic.frameworks.versions import installed
from tfgpu_magic.monitor.report import TENSORFLOW

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from tfgpu_magic.config.framework_plan import FrameworkPlan, FrameworkState, Wanted
    from tfgpu_magic.config.runtime import Runtime
    from tfgpu_magic.frameworks.array import Array
    from tfgpu_magic.frameworks.objects import Objects
    from tfgpu_magic.frameworks.shortage import PoolState
    from tfgpu_magic.monitor.report import Figure


class Framework(Protocol):
    """What the package needs of a framework."""

    @property
    def name(self) -> str:
        """Its name for people, which its figures carry."""

    @property
    def out_of_memory(self) -> re.Pattern[str]:
        """A pattern that its errors match when a GPU has no memory left."""

    @property
    def runtime(self) -> Runtime | None:
        """What enforces a policy on it; None for any but TensorFlow."""

    since: str | None
    """The cell that made it use a GPU, as a phrase, if the cells are watched."""

    def stage(self) -> Stage:
        """Return its stage in this process, without changing it."""

    def figures(self) -> Mapping[str, tuple[Figure, ...]]:
        """Return its allocator's figures by the UUID of each GPU; called only while its stage is `Stage.READY`."""


@runtime_checkable
class Limited(Framework, Protocol):
    """A framework beside TensorFlow that can be told what it may take.

    Attributes:
        fixed_once_used: whether nothing can be changed any more once it uses a GPU.
        comes_with_tensorflow: whether TensorFlow imports it where it is installed, so that nobody need want it.
    """

    fixed_once_used: bool
    comes_with_tensorflow: bool

    def version(self) -> tuple[int, ...]:
        """Return the version that is installed; empty where it is not."""

    def held(self) -> Mapping[str, int]:
        """Return the bytes that it has taken of each GPU, by UUID; empty where that does not matter for a plan."""

    def plan(self, wanted: Wanted, state: FrameworkState) -> FrameworkPlan:
        """Decide what is done about it. Pure.

        Raises:
            Refused: it has taken more than it is to have.
        """

    def configure(self, plan: FrameworkPlan) -> None:
        """Tell it, where it is imported, what variables cannot tell it any more; it is not started for that."""


@runtime_checkable
class Explained(Framework, Protocol):
    """A framework whose errors and pools tell why a GPU had no memory left."""

    def shortage(self, text: str) -> Shortage | None:
        """Return what an error's text says of memory that was missing; None where it is another error's. Pure."""

    def pools(self) -> Sequence[PoolState]:
        """Return its pools as they are now; called only while its stage is `Stage.READY`."""


@runtime_checkable
class Counted(Framework, Counting, Protocol):
    """A framework whose allocator counts what is in use, and the most that was."""


@runtime_checkable
class Holder(Framework, Protocol):
    """A framework that tells which objects of Python's are its arrays; called only while its stage is `Stage.READY`."""

    def arrays(self, objects: Objects) -> Iterable[Array]:
        """Return its arrays on GPUs; no code of the user's runs for that.

        Args:
            objects: all objects that Python's garbage collector knows, for a framework that has no list of its own.
        """

    def in_use(self) -> Mapping[str, int]:
        """Return the bytes that its arrays take of each GPU by its own figure, by the names that its arrays have."""


@runtime_checkable
class Freeing(Framework, Protocol):
    """A framework that can give GPU memory back to the driver while it lives."""

    @property
    def gives_back(self) -> bool:
        """Whether it does, as it is set up in this process."""

    def give_back(self) -> Mapping[str, int]:
        """Give back what it keeps and no array uses; called only while its stage is `Stage.READY`.

        Returns:
            The bytes that went back, by the UUID of each GPU.
        """


@runtime_checkable
class Deferring(Framework, Protocol):
    """A framework whose operations may reach the GPU after the cell that asked for them has ended."""

    def finish(self) -> None:
        """Wait until all of them have; called only while its stage is `Stage.READY`."""


FRAMEWORKS: tuple[Framework, ...] = (TensorFlow(), Torch(), Jax())
"""The frameworks, in the order in which views show their figures."""

COUNTED: tuple[Counted, ...] = tuple(one for one in FRAMEWORKS if isinstance(one, Counted))
"""Those that count: found once, since that takes longer than to read the counters."""

PEAKS: dict[str, SharedPeaks] = {one.name: SharedPeaks(one) for one in COUNTED}
"""The peak counters of each framework that has them, by its name."""


def has_tensorflow() -> bool:
    """Tell whether TensorFlow is installed; it is not imported for that."""
    return bool(installed("tensorflow"))


def awake() -> list[Framework]:
    """Return the frameworks that use a GPU, or a CUDA context that may be theirs."""
    return [one for one in FRAMEWORKS if one.stage() in (Stage.READY, Stage.POISONED)]


def limited() -> list[Limited]:
    """Return the frameworks beside TensorFlow that are installed and can be told what they may take."""
    return [one for one in FRAMEWORKS if isinstance(one, Limited) and one.version()]


def freeing() -> list[Freeing]:
    """Return the frameworks that use a GPU and can give back what they keep of it."""
    return [one for one in FRAMEWORKS if isinstance(one, Freeing) and one.stage() is Stage.READY and one.gives_back]


def finish() -> None:
    """Wait until all that the frameworks have been asked for has reached the GPUs, and is done there."""
    for one in FRAMEWORKS:
        if isinstance(one, Deferring) and one.stage() is Stage.READY:
            one.finish()
    cuda.synchronise()


def imported() -> set[str]:
    """Return the names of the frameworks that are imported, and not only because TensorFlow is."""
    return {one.name for one in FRAMEWORKS if _is_imported(one)}


def _is_imported(framework: Framework) -> bool:
    if getattr(framework, "comes_with_tensorflow", False) and current_stage() is not Stage.ABSENT:
        return framework.stage() in (Stage.READY, Stage.LISTED)
    return framework.stage() is not Stage.ABSENT


def figures() -> dict[str, tuple[Figure, ...]]:
    """Return the figures of all frameworks that are ready, by the UUID of the GPU; some 10 µs a GPU and framework."""
    found: dict[str, tuple[Figure, ...]] = {}
    for framework in FRAMEWORKS:
        # Their errors have no common root. A framework that fails has no figures, and the others keep theirs.
        with contextlib.suppress(Exception):
            if framework.stage() is Stage.READY:
                for uuid, figures_there in framework.figures().items():
                    found[uuid] = (*found.get(uuid, ()), *figures_there)
    return found


def pools() -> list[PoolState]:
    """Return the pools of all frameworks that are ready."""
    found: list[PoolState] = []
    for framework in FRAMEWORKS:
        with contextlib.suppress(Exception):  # as in `figures`
            if isinstance(framework, Explained) and framework.stage() is Stage.READY:
                found += framework.pools()
    return found


def counters() -> list[Counter]:
    """Return the counters of the pools of all frameworks that use a GPU; some 10 µs a pool."""
    found: list[Counter] = []
    for framework in COUNTED:
        with contextlib.suppress(Exception):  # as in `figures`
            found += framework.counters()
    return found


def session_peaks() -> dict[str, tuple[Counter, ...]]:
    """Return the same by framework, with the peaks of the whole session, whoever has reset the counters since."""
    found: dict[str, tuple[Counter, ...]] = {}
    for name, peaks in PEAKS.items():
        with contextlib.suppress(Exception):  # as in `figures`
            found[name] = peaks.read(peaks.session)
    return found


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is any framework's report that a GPU has no memory left.

    Only its text is matched: an error of another process has no type or traceback that would show its framework.
    """
    text = _text(error)
    return any(framework.out_of_memory.search(text) for framework in FRAMEWORKS)


def shortage(error: BaseException) -> Shortage | None:
    """Return what an error says of memory that a GPU did not have; None where it is about something else.

    Frameworks share words: the one that raised it is asked first, as far as its type and its traceback show that.
    TensorFlow's words are the most general, and it is asked last. What CUDA's driver says to any program counts only
    where a traceback shows a framework, or there is none.
    """
    text = _text(error)
    raising = {one.name for one in FRAMEWORKS if _raised(one, error)}
    anybodys = error.__traceback__ is not None and DRIVERS.search(text) is not None
    for framework in sorted(FRAMEWORKS, key=lambda one: (one.name not in raising, one.name == TENSORFLOW)):
        if anybodys and framework.name not in raising:
            continue
        if isinstance(framework, Explained):
            found = framework.shortage(text)
        else:
            found = Shortage(framework=framework.name) if framework.out_of_memory.search(text) else None
        if found is not None:
            return found
    return None


def _text(error: BaseException) -> str:
    """Return an error's text; of a class whose own code fails, none."""
    try:
        return str(error)
    except Exception:
        return ""


def _raised(framework: Framework, error: BaseException) -> bool:
    """Tell whether an error's type or traceback shows that a framework raised it."""
    roots = {module for module, name in NAMES.items() if name == framework.name}
    roots |= {f"{module}lib" for module in roots}  # JAX raises in jaxlib
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(name).partition(".")[0] in roots for name in (type(error).__module__, *frames))
