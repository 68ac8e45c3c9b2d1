"""What the package asks of a framework, with what holds for one that has nothing of it."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib import metadata
from typing import TYPE_CHECKING, ClassVar

from tfgpu_magic.frameworks import import_hook
from tfgpu_magic.frameworks.shortage import Shortage
from tfgpu_magic.ground.report import Figure
from tfgpu_magic.policy.plan import FrameworkPlan
from tfgpu_magic.policy.process_state import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tfgpu_magic.frameworks.array import Array
    from tfgpu_magic.frameworks.counters import Counters
    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.policy.plan import FrameworkState


class Framework:
    """A framework that may take GPU memory in this process. What reads its memory is asked only at `Stage.READY`.

    Attributes:
        name: its name for people, which its figures carry.
        out_of_memory: a pattern that its errors match when a GPU has no memory left.
        since: the cell that made it use a GPU, as a phrase, if the cells are watched.
        words: what views call what is in use, what it has of the driver and its limit; "" for what they leave out.
        comes_with_tensorflow: whether TensorFlow imports it where it is installed, so that nobody need want it.
        fixed_once_used: whether nothing can be changed any more once it uses a GPU.
        resets: whether its counters of peaks can be reset.
        counters: those counters; None where they cannot be.
        module: the module whose import brings them.
        package: what tells its version, of one beside TensorFlow that can be told what it may take; else "".
        grows_by: the variables with which it takes memory as it needs it, of one that does not by itself.
        gives_back: whether it can give GPU memory back to the driver while it lives, as it is set up in this process.
    """

    name: str
    out_of_memory: re.Pattern[str]
    since: str | None = None
    words: tuple[str, str, str] = ("in use", "pool", "limit")
    comes_with_tensorflow = False
    fixed_once_used = False
    resets = False
    counters: Counters | None = None
    module = ""
    package = ""
    grows_by: ClassVar[Mapping[str, str]] = {}
    gives_back = False

    _between: Callable[[Callable[[], None]], None]

    def stage(self) -> Stage:
        """Return its stage in this process, without changing it."""
        return Stage.ABSENT

    def pools(self) -> Sequence[Pool]:
        """Return its pools as they are now, none unless its stage is `Stage.READY`; some 10 µs a pool."""
        return ()

    def with_settings(self, pool: Pool) -> Pool:
        """Return one of its pools with what its settings say of it, where that takes longer to read."""
        return pool

    def figures(self) -> Mapping[str, tuple[Figure, ...]]:
        """Return its allocator's figures by the UUID of each GPU that it has taken memory of."""
        found: dict[str, list[Pool]] = {}
        for pool in self.pools():
            if pool.touched and (pool.taken is None or pool.taken or pool.in_use):
                found.setdefault(pool.gpu, []).append(pool)
        return {gpu: tuple(self._figures(pools)) for gpu, pools in found.items()}

    def _figures(self, pools: Sequence[Pool]) -> Iterator[Figure]:
        in_use, pooled, limited = self.words
        peaks = [pool.peak for pool in pools if pool.peak]
        taken = [pool.taken for pool in pools if pool.taken is not None] if pooled else []
        yield Figure(
            framework=self.name, what=in_use, size=sum(pool.in_use for pool in pools), used=True, taken=not taken
        )
        # Pools have peaks of their own: their sum is not the peak of the sum.
        peak = "peaks" if len(peaks) > 1 else "peak"
        yield Figure(framework=self.name, what=peak, size=sum(peaks), peak=True)
        if taken:
            yield Figure(framework=self.name, what=pooled, size=sum(taken), taken=True)
        for pool in pools:
            if limited and pool.limit:
                yield Figure(framework=self.name, what=limited, size=pool.limit)

    def held(self) -> Mapping[str, int]:
        """Return the bytes that it has taken of each GPU, by UUID; empty where it does not tell, or uses none."""
        return {pool.gpu: pool.taken for pool in self.pools() if pool.taken}

    def shortage(self, text: str) -> Shortage | None:
        """Return what an error's text says of memory that was missing; None where it is another error's. Pure."""
        return Shortage(framework=self.name) if self.out_of_memory.search(text) else None

    def reset_peaks(self) -> None:
        """Reset its counters of peaks; what its own functions tell of them stays."""

    def share_peaks(self, between: Callable[[Callable[[], None]], None]) -> None:
        """Run other code's resets through `between`, from the import on; called often, always with that function."""
        if self.counters is not None:
            self._between = between
            import_hook.call_at_import(self._share, self.module)

    def _share(self) -> None:
        if self.counters is not None:
            self.counters.share(self._between)

    def arrays(self, objects: Sequence[object]) -> Iterable[Array]:  # noqa: ARG002  # for those that have no list
        """Return its arrays on GPUs; no code of the user's runs for that.

        Args:
            objects: all objects that Python's garbage collector knows, for a framework that has no list of its own.
        """
        return ()

    def give_back(self) -> Mapping[str, int]:
        """Free what it keeps and no array uses; return the bytes that were freed, by the UUID of each GPU."""
        return {}

    def allocator(self) -> str:
        """Return the name of its allocator, of one that tells it before it is used; else empty."""
        return ""

    def after_cell(self) -> None:
        """Set what could not be set before a cell's own code ran; called after each cell."""

    def version(self) -> tuple[int, ...]:
        """Return the installed version of a framework beside TensorFlow that can be limited; else ()."""
        return installed(self.package) if self.package else ()

    def plan(self, wanted: FrameworkPlan, state: FrameworkState) -> FrameworkPlan:  # noqa: ARG002
        """Return the plan for this framework, GPU by GPU. Pure.

        Raises:
            Refused: it has taken more than it is to have, or cannot be told.
        """
        return FrameworkPlan(framework=self.name)

    def is_cpu_only(self) -> bool:
        """Return whether it has no GPU in this process, and never will."""
        return False

    def configure(self, part: FrameworkPlan) -> None:
        """Set by its own API, if it is imported, what variables no longer set; it is not started for that."""


_found: dict[str, tuple[int, ...]] = {}
"""The versions that were found. What is not there may be installed later, by `%pip` in the same process."""


def installed(module: str) -> tuple[int, ...]:
    """Return the version of an installed framework as numbers, ``(2, 13, 0)``; empty where there is none.

    A module without metadata, as of a build in place, counts as of the newest version.
    """
    if module not in _found and (version := _look_up(module)):
        _found[module] = version
    return _found.get(module, ())


def _look_up(module: str) -> tuple[int, ...]:
    if module not in sys.modules and importlib.util.find_spec(module) is None:
        return ()
    try:
        version = metadata.version(module)
    except metadata.PackageNotFoundError:
        return NEWEST
    return tuple(map(int, re.findall(r"\d+", version)[:3])) or NEWEST


NEWEST = (1000,)
