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
    for name, value, is_array, error in _leaves(thing, of_one):
        names[name] += 1
        found[name if names[name] == 1 else f"{name} #{names[name]}"] = value  # TensorFlow may give a name twice
        count += is_array
        errors += [error] * bool(error)
    return found.get("", found), count, errors


def _leaves(thing: Any, of_one: Sequence[Callable[[Any], Any]], name: str = "") -> Iterator[tuple[str, Any, bool, str]]:
    """Yield each part's name, its array or itself, whether it is one, and why it could not be read."""
    if type(thing).__module__.startswith("keras."):
        thing = getattr(thing, "_value", thing)  # a variable's, of whatever backend
    try:
        array = next((found for one in of_one if (found := one(thing)) is not None), None)
    except Exception as error:  # one that has stayed, on a GPU that does not answer
        yield name, thing, False, str(error) or type(error).__name__
        return
    if array is not None:
        yield name, array, True, ""
        return
    try:
        parts = _parts(thing)
    except Exception:  # its attributes are made up by code of its user's
        parts = None
    if parts is None:
        yield name, thing, False, ""
        return
    for key, part in parts:
        yield from _leaves(part, of_one, f"{name}.{key}" if name else str(key))


def _parts(thing: Any) -> Iterable[tuple[Any, Any]] | None:
    if isinstance(thing, Mapping):
        return thing.items()
    if isinstance(thing, list | tuple):
        return enumerate(thing)
    if isinstance(variables := getattr(thing, "variables", None), list | tuple):  # Keras's, and TensorFlow's modules
        slots = getattr(getattr(thing, "optimizer", None), "variables", ())
        return [(getattr(one, "path", "") or one.name, one) for one in (*variables, *slots)]
    if callable(state := getattr(thing, "state_dict", None)):  # PyTorch's modules and optimizers
        return list(state().items())
    return None
