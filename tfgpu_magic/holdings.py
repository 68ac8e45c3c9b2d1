"""`tensors`, `free` and `give_back`: what holds GPU memory here, and what lets go of it at once."""

from __future__ import annotations

from tfgpu_magic import frameworks
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.config.requests.growth import Growth
from tfgpu_magic.errors import Refused
from tfgpu_magic.host import here
from tfgpu_magic.insight import freeing
from tfgpu_magic.insight.tensors import inventory
from tfgpu_magic.views.freed import Freed
from tfgpu_magic.views.tensors import Tensors


def tensors(*, everything: bool = False) -> Tensors:
    """Return what holds this process's memory of the GPUs, by name. No framework is started for it.

    Names lead to arrays from a notebook's variables, from what IPython keeps of results and errors, from functions
    that run, and from modules of your own.

    Args:
        everything: whether each array stands by itself; else those that are small stand together with their
            neighbours, as soon as there are more than twenty.

    Returns:
        What holds the memory, for all frameworks that use a GPU, the largest first, sizes in bytes; and what each
        framework has in use on each GPU by its own figure. It keeps nothing alive.
    """
    return Tensors(inventory(everything=everything))


def free(*names: str) -> Freed:
    """Let go of what IPython keeps of results and errors, of names, of garbage and of caches.

    Args:
        names: names of the notebook, or of a program's main module, to delete.

    Returns:
        What became free in the frameworks' pools, and what went back to the driver, in bytes.

    Raises:
        PolicyError: one of the names is not there; nothing is let go of then.
    """
    return Freed(freeing.free(names))


def give_back() -> int:
    """Give GPU memory that is kept and not used back to the driver, while this process lives.

    TensorFlow gives back where `growth --release` is in force, and PyTorch what its cache keeps; JAX cannot. It waits
    until the GPUs have done their work. What something refers to stays, and no framework is started for it.

    Returns:
        The bytes that went back, of all GPUs together, by the driver's account or by PyTorch's.

    Raises:
        Refused: no framework that uses the GPUs can give memory back.
    """
    freeing = frameworks.freeing()
    keeping = [framework.name for framework in frameworks.FRAMEWORKS if framework.stage() is Stage.READY]
    if keeping and not freeing:
        keep = "keeps" if len(keeping) == 1 else "keep"
        raise Refused(
            f"{' and '.join(keeping)} {keep} the GPU memory that was taken until this {here()} ends. TensorFlow gives "
            f"back what it does not use where `{Growth(release=True)}` was said before its first operation.",
            verdict="",
        )
    return sum(sum(framework.give_back().values()) for framework in freeing)
