"""What is in host memory as NumPy arrays by name, for a notebook that goes on without its GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any


def arrays(thing: Any, of_one: Sequence[Callable[[Any], Any]]) -> tuple[Any, int, list[str]]:
    """Return the arrays of a variable or tensor, model, optimizer, list or dict, how many they are, and what failed.

    Args:
        thing: what has them.
        of_one: each returns the array of a variable or tensor of one framework, and None for anything else.

    Returns:
        An array if it is a variable or tensor, else a dict by name, in which all else is as it was; the number of
        arrays; an error for each variable or tensor that could not be read, and is as it was.
    """
    found: dict[str, Any] = {}
    names, count, errors = Counter[str](), 0, list[str]()
    for name, leaf in _leaves(thing):
        kept = leaf
        try:
            for one in of_one:
                if (array := one(leaf)) is not None:
                    kept, count = array, count + 1
        except Exception as error:  # one that has stayed, on a GPU that does not answer
            errors.append(str(error) or type(error).__name__)
        names[name] += 1
        found[name if names[name] == 1 else f"{name} #{names[name]}"] = kept  # TensorFlow may give a name twice
    return found.get("", found), count, errors


def _leaves(thing: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    parts: Iterable[tuple[Any, Any]]
    if isinstance(thing, Mapping):
        parts = thing.items()
    elif isinstance(thing, list | tuple):
        parts = enumerate(thing)
    elif isinstance(variables := getattr(thing, "variables", None), list | tuple):  # Keras's, and TensorFlow's modules
        slots = getattr(getattr(thing, "optimizer", None), "variables", ())
        parts = [(getattr(one, "path", "") or one.name, one) for one in (*variables, *slots)]
    elif callable(state := getattr(thing, "state_dict", None)):  # PyTorch's modules and optimizers
        parts = state().items()
    else:
        of_keras = type(thing).__module__.startswith("keras.")
        yield name, getattr(thing, "_value", thing) if of_keras else thing  # a variable's, of whatever backend
        return
    for key, part in parts:
        yield from _leaves(part, f"{name}.{key}" if name else str(key))
