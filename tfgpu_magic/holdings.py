"""`tensors` and `free`: they connect `insight`, which does the steps, and `views`."""

from __future__ import annotations

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
