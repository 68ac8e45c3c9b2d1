"""Keras, as it stands over a framework: what its models and optimizers call their parts.

It is asked only where it is imported. Source: Keras 3, `models/`, `layers/layer.py`, `optimizers/base_optimizer.py`
and `backend/common/variables.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfgpu_magic.frameworks.objects import attributes, has_property, is_a, is_subclass, items, lookup, subclasses
from tfgpu_magic.frameworks.tensorflow.containers import unwrap

_LAYER = ("keras.src.layers.layer", "Layer")
_MODEL = ("keras.src.models.model", "Model")
_SEQUENTIAL = ("keras.src.models.sequential", "Sequential")
_FUNCTIONAL = ("keras.src.models.functional", "Functional")
_INPUT = ("keras.src.layers.core.input_layer", "InputLayer")
_OPTIMIZER = ("keras.src.optimizers.base_optimizer", "BaseOptimizer")
_VARIABLE = ("keras.src.backend.common.variables", "Variable")


def is_model(kind: type) -> bool:
    """Return whether a class is a model's."""
    return _is_class(kind, _MODEL)


def variables() -> list[type]:
    """Return the classes of its variables, which wrap those of the framework; none where it is not imported."""
    base = lookup(*_VARIABLE)
    return [] if base is None else subclasses(base)


def has_parts(kind: type) -> bool:
    """Return whether the objects of a class name their parts otherwise than by their attributes."""
    return any(_is_class(kind, one) for one in (_LAYER, _OPTIMIZER, _VARIABLE))


def parts(thing: object) -> Iterator[tuple[str, object]]:
    """Return the parts of a layer, a model, an optimizer or a variable, by what a user writes behind its name.

    A variable's value is called as the variable, and no code of a user's subclass is run.
    """
    kind, own = type(thing), attributes(thing)
    if _is_class(kind, _VARIABLE):
        yield "", own.get("_value")
    elif _is_class(kind, _OPTIMIZER):
        yield from _numbered(".variables", own.get("_variables"))
    else:
        yield from _layer_parts(kind, own)


def _layer_parts(kind: type, own: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in items(own):
        if not name.startswith("_"):
            yield f".{name}", value
        elif has_property(kind, name[1:]) and not is_a(value, list):
            yield f".{name[1:]}", value
    yield from _numbered(".layers", _layers(kind, own))


def _layers(kind: type, own: Mapping[str, Any]) -> list[object]:
    """Return what `layers` gives of a model that is made of a list or a graph; its own author names another's."""
    if _is_class(kind, _FUNCTIONAL):
        return [one for one in own.get("_operations") or () if _is_class(type(one), _LAYER)]
    if not _is_class(kind, _SEQUENTIAL):
        return []
    found = list(own.get("_layers") or ())
    return found[1:] if found and _is_class(type(found[0]), _INPUT) else found


def _numbered(name: str, values: object) -> Iterator[tuple[str, object]]:
    values = unwrap(values)
    if is_a(values, list):
        elements: Iterator[object] = list.__iter__(values)  # type: ignore[arg-type]  # a list, as `is_a` says
        yield from ((f"{name}[{number}]", value) for number, value in enumerate(elements))


def _is_class(kind: type, place: tuple[str, str]) -> bool:
    base = lookup(*place)
    return base is not None and is_subclass(kind, base)
