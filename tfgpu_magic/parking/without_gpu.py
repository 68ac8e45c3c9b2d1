"""What is in host memory as NumPy arrays by name, for a notebook that goes on without its GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    found, names, errors, count = dict[str, Any](), Counter[str](), list[str](), 0

    def add(name: str, thing: Any) -> None:
        nonlocal count
        if type(thing).__module__.startswith("keras."):
            thing = getattr(thing, "_value", thing)  # a variable's, of whatever backend
        try:
            array = next((made for one in of_one if (made := one(thing)) is not None), None)
        except Exception as error:  # one that has stayed, on a GPU that does not answer
            errors.append(str(error) or type(error).__name__)
            array, parts = None, None
        else:
            parts = _parts(thing) if array is None else None
        if parts is not None:
            for key, part in parts:
                add(f"{name}.{key}" if name else str(key), part)
            return
        count += array is not None
        names[name] += 1
        numbered = name if names[name] == 1 else f"{name} #{names[name]}"  # TensorFlow may give a name twice
        found[numbered] = thing if array is None else array

    add("", thing)
    return found.get("", found), count, errors


def _parts(thing: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the parts of a container, model or optimizer with their names; None of anything else."""
    if isinstance(thing, Mapping):
        return thing.items()
    if isinstance(thing, list | tuple):
        return enumerate(thing)
    try:
        if isinstance(variables := getattr(thing, "variables", None), list | tuple):  # Keras's, TensorFlow's modules
            slots = getattr(getattr(thing, "optimizer", None), "variables", ())
            return [(getattr(one, "path", "") or one.name, one) for one in (*variables, *slots)]
        state = getattr(thing, "state_dict", None)  # that of PyTorch's modules and optimizers
        return list(state().items()) if callable(state) else None
    except Exception:  # its attributes are made up by code of its user's
        return None
