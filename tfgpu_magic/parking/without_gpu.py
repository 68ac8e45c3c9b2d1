"""What is in host memory as NumPy arrays by name, for a notebook that goes on without its GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any


def arrays(thing: Any, of_one: Sequence[Callable[[Any], Any]]) -> tuple[Any, int]:
    """Return the arrays of a variable or tensor, model, optimizer, list or dict, and how many they are.

    Args:
        thing: what has them.
        of_one: each returns the array of a variable or tensor of one framework, and None for anything else.

    Returns:
        An array if it is a variable or tensor, else a dict by name, in which all else is as it was.
    """
    found: dict[str, Any] = {}
    count = 0
    for name, leaf in _leaves(thing):
        kept = leaf
        with contextlib.suppress(Exception):  # one that has stayed, on a GPU that does not answer
            for one in of_one:
                if (array := one(leaf)) is not None:
                    kept, count = array, count + 1
        again = sum(one == name or one.startswith(f"{name} #") for one in found)
        found[f"{name} #{again + 1}" if again else name] = kept  # TensorFlow may give a name twice
    return found.get("", found), count


def _leaves(thing: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    parts: Iterable[tuple[Any, Any]]
    if isinstance(thing, Mapping):
        parts = thing.items()
    elif isinstance(thing, list | tuple):
        parts = enumerate(thing)
    elif callable(state := getattr(thing, "state_dict", None)):  # PyTorch's modules and optimizers
        parts = state().items()
    elif isinstance(variables := getattr(thing, "variables", None), list | tuple):  # Keras's, and TensorFlow's modules
        slots = getattr(getattr(thing, "optimizer", None), "variables", ())
        parts = [(getattr(one, "path", "") or one.name, one) for one in (*variables, *slots)]
    else:
        yield name, thing
        return
    for key, part in parts:
        yield from _leaves(part, f"{name}.{key}" if name else str(key))
