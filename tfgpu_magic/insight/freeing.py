"""Lets go of memory: of names, what IPython keeps, garbage and caches; and tells what became free."""

from __future__ import annotations

import contextlib
import gc
import os

from tfgpu_magic.errors import PolicyError, Refused
from tfgpu_magic.frameworks import custom_gradients, registry
from tfgpu_magic.host import here
from tfgpu_magic.insight import shell
from tfgpu_magic.insight.answers.freed import Change, Freed
from tfgpu_magic.insight.answers.tensors import Tensors
from tfgpu_magic.insight.search import Identity, figures, leading, reached_from
from tfgpu_magic.insight.tensors import still_there
from tfgpu_magic.monitor.driver.look import LOOK_TIMEOUT, look
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.policy.requests.growth import Growth
from tfgpu_magic.policy.vocabulary import nearest


def free(*names: str) -> Freed:
    """Let go of the results and errors that alone lead to GPU memory, of names, of garbage and of caches.

    Args:
        names: names of the notebook, or of a program's main module, to delete.

    Returns:
        What became free in the frameworks' pools, and what went back to the driver, in bytes.

    Raises:
        PolicyError: one of the names is not there; nothing is let go of then.
    """
    unknown = [name for name in names if name not in shell.names()]
    if unknown:
        raise PolicyError(_no_such_name(unknown[0]))
    led_to = reached_from([shell.names()[name] for name in names]) if names else set[Identity]()
    in_use, held = figures(), _held()
    shell.forget_names(names)
    dropped = _forget()
    custom_gradients.leave_to_graphs()
    gc.collect()
    given = _give_back()
    in_use_after, held_after = figures(), _held()
    return Freed(
        names=tuple(dict.fromkeys(names)),
        in_use={device: Change(before=size, after=in_use_after.get(device, 0)) for device, size in in_use.items()},
        held={gpu: Change(before=size, after=held_after[gpu]) for gpu, size in held.items() if gpu in held_after},
        dropped=dropped,
        remaining=still_there(led_to) if led_to else Tensors(),
        given=given,
    )


def give_back() -> int:
    """Give GPU memory that is kept and not used back to the driver, while this process lives.

    TensorFlow gives back where `growth --release` is in force, and PyTorch what its cache keeps; JAX cannot. It waits
    until the GPUs have done their work. What something refers to stays, and no framework is started for it.

    Returns:
        The bytes that went back, of all GPUs together, by the driver's account or by PyTorch's.

    Raises:
        Refused: no framework that uses the GPUs can give memory back.
    """
    can = registry.freeing()
    keeping = [framework.name for framework in registry.FRAMEWORKS if framework.stage() is Stage.READY]
    if keeping and not can:
        keep = "keeps" if len(keeping) == 1 else "keep"
        raise Refused(
            f"{' and '.join(keeping)} {keep} the GPU memory that was taken until this {here()} ends. TensorFlow gives "
            f"back what it does not use where `{Growth(release=True)}` was said before its first operation.",
            verdict="",
        )
    return sum(sum(framework.give_back().values()) for framework in can)


def _no_such_name(name: str) -> str:
    """Return what is wrong with a name; no variable of its frame, which an error keeps, has a value of the notebook."""
    near = nearest(name, shell.names())
    suggested = near if near.startswith(" Did you mean") else ""
    return f"`free {name}` cannot be done: there is no name {name!r} here to delete.{suggested}"


def _forget() -> tuple[str, ...]:
    """Let go of the results and errors that lead to arrays which no name keeps; return what people call them."""
    unwanted = leading([*(value for _, value in shell.results()), *shell.errors()])
    dropped = sorted(name for name, value in shell.results() if name and id(value) in unwanted)
    if any(id(error) in unwanted for error in shell.errors()):
        shell.forget_errors()
        dropped.append("the last error")
    shell.forget_results(unwanted)
    return tuple(dropped)


def _give_back() -> dict[str, int]:
    """Have each framework that can give memory back to the driver; return the bytes by its name, 0 where it fails."""
    given: dict[str, int] = {}
    for framework in registry.freeing():
        given[framework.name] = 0
        with contextlib.suppress(Exception):  # their errors have no common root; the figures tell what came of it
            given[framework.name] = sum(framework.give_back().values())
    return given


def _held() -> dict[str, int]:
    """Return what the driver says that this process holds of each GPU."""
    found: dict[str, int] = {}
    for process in look(LOOK_TIMEOUT).processes:
        if process.pid == os.getpid() and process.held is not None:
            found[process.gpu] = found.get(process.gpu, 0) + process.held
    return found
