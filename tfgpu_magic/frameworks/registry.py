"""The frameworks that may take GPU memory in this process: a folder each, and a line in `frameworks.NAMES`.

They are queried only where the user's own code has imported and started them: nothing here imports or starts one.
"""

from __future__ import annotations

import contextlib
import importlib
import traceback
from typing import TYPE_CHECKING

from tfgpu_magic.frameworks import NAMES
from tfgpu_magic.frameworks.base import Framework, installed
from tfgpu_magic.frameworks.peaks import SharedPeaks
from tfgpu_magic.frameworks.runtime import RUNTIME, alike
from tfgpu_magic.frameworks.shortage import DRIVERS
from tfgpu_magic.frameworks.tensorflow.devices import current_stage, note_import
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.policy.process_state import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.frameworks.shortage import Shortage
    from tfgpu_magic.ground.report import Figure
    from tfgpu_magic.policy.plan import FrameworkPlan

__all__ = ["FRAMEWORKS", "PEAKS", "RUNTIME", "Framework", "installed", "note_import"]

FRAMEWORKS: tuple[Framework, ...] = tuple(
    importlib.import_module(f"{__package__}.{module}.framework").FRAMEWORK for module in NAMES
)
"""The frameworks, in the order in which views show their figures."""

PEAKS: dict[str, SharedPeaks] = {one.name: SharedPeaks(one) for one in FRAMEWORKS}
"""The peak counters of each framework, by its name."""

LESS = 0.05
"""The part by which a limit that is a fraction may be another: of a T4, CUDA counts 3% less than the driver does."""


def active() -> list[Framework]:
    """Return the frameworks that use a GPU, or a CUDA context that may be theirs."""
    return [one for one in FRAMEWORKS if one.stage() in (Stage.READY, Stage.POISONED)]


def limitable() -> list[Framework]:
    """Return the installed frameworks beside TensorFlow that can be limited."""
    return [one for one in FRAMEWORKS if one.version()]


def freeable() -> list[Framework]:
    """Return the frameworks that use a GPU and can give back what they keep of it."""
    return [one for one in FRAMEWORKS if one.stage() is Stage.READY and one.gives_back]


def after_cell() -> None:
    """Set in each framework what could not be set before a cell's own code ran."""
    for one in FRAMEWORKS:
        with contextlib.suppress(Exception):  # as in `figures`
            one.after_cell()


def imported_names() -> set[str]:
    """Return the names of the frameworks that are imported, and not only because TensorFlow is."""
    return {one.name for one in FRAMEWORKS if _is_imported(one)}


def _is_imported(framework: Framework) -> bool:
    if framework.comes_with_tensorflow and current_stage() is not Stage.ABSENT:
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


def pools(*, settings: bool = False) -> list[Pool]:
    """Return the pools of all frameworks on the GPUs of which they have taken memory; some 10 µs a pool.

    Args:
        settings: whether to read, too, what settings say of them.
    """
    found: list[Pool] = []
    for framework in FRAMEWORKS:
        with contextlib.suppress(Exception):  # as in `figures`
            there = [one for one in framework.pools() if one.touched]
            found += map(framework.with_settings, there) if settings else there
    return found


def changed_limits(parts: Iterable[FrameworkPlan]) -> dict[str, dict[str, int | None]]:
    """Return the limits that other code has set since ours were applied, by UUID; None is no limit."""
    told = {part.framework: part for part in parts if not part.unmet}
    found: dict[str, dict[str, int | None]] = {}
    for one in pools() if told else ():
        part = told.get(one.framework)
        asked, now = part.limits.get(one.gpu) if part else None, one.limit
        if part and asked and not (now and (alike([now], [asked], LESS) or (now < asked and one.gpu in part.ceilings))):
            found.setdefault(one.framework, {})[one.gpu] = now
    return found


def session_peaks() -> dict[str, tuple[Pool, ...]]:
    """Return the pools by framework, with the peaks of the whole session, whoever has reset the counters since."""
    found: dict[str, tuple[Pool, ...]] = {}
    for name, peaks in PEAKS.items():
        with contextlib.suppress(Exception):  # as in `figures`
            found[name] = peaks.read(peaks.session)
    return found


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is any framework's report that a GPU has no memory left.

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
    raising = {one.name for one in FRAMEWORKS if _was_raised_by(one, error)}
    anybodys = error.__traceback__ is not None and DRIVERS.search(text) is not None
    for framework in sorted(FRAMEWORKS, key=lambda one: (one.name not in raising, one.name == TENSORFLOW)):
        if anybodys and framework.name not in raising:
            continue
        found = framework.shortage(text)
        if found is not None:
            return found
    return None


def _text(error: BaseException) -> str:
    """Return an error's text; of a class whose own code fails, none."""
    try:
        return str(error)
    except Exception:
        return ""


def _was_raised_by(framework: Framework, error: BaseException) -> bool:
    """Return whether an error's type or traceback shows that a framework raised it."""
    roots = {module for module, name in NAMES.items() if name == framework.name}
    roots |= {f"{module}lib" for module in roots}  # JAX raises in jaxlib
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(name).partition(".")[0] in roots for name in (type(error).__module__, *frames))
