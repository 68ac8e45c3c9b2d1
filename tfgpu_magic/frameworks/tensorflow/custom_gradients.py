"""Graphs that only TensorFlow's registry of gradients keeps, and with them the variables of models that are gone.

A function with a gradient of its own that is called within a graph enters it there, by a name that is never removed:
Keras' `fit` does, for each model. The gradient refers to the graph, and the graph to all that it has captured.
Source: TensorFlow, `python/ops/custom_gradient.py`, `python/framework/registry.py` and `func_graph.py`.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterator, MutableMapping
from types import FunctionType
from typing import Any

_PREFIX = "CustomGradient-"
_KEPT = "_tfgpu_magic_gradients"


def move_to_graphs() -> None:
    """Move the gradients into their graphs, so that a graph without other references is garbage.

    The gradients of those that live are found as before.
    """
    ops: Any = sys.modules.get("tensorflow.python.framework.ops")
    registry = getattr(ops, "gradient_registry", None)
    entries: MutableMapping[str, Any] = getattr(registry, "_registry", {})
    for name, entry in list(entries.items()):
        with contextlib.suppress(Exception):  # results with code of their own hide no other gradient
            gradient = entry["type"]
            if name.startswith(_PREFIX) and isinstance(gradient, FunctionType):
                owners = list(_graphs(gradient))
                if owners:
                    entry["type"] = _KeptGradient(name, gradient, owners, entries)


class _KeptGradient:
    """A gradient that is kept by the graphs in which it was made; it is entered as long as one of them lives."""

    def __init__(self, name: str, gradient: FunctionType, graphs: list[Any], entries: MutableMapping[str, Any]) -> None:
        for graph in graphs:
            setattr(graph, _KEPT, {**getattr(graph, _KEPT, {}), name: gradient})
        self._name, self._entries = name, entries
        self._graphs = [weakref.ref(graph, self._forget) for graph in graphs]

    def __call__(self, operation: object, *gradients: object) -> object:
        graph = next(graph for one in self._graphs if (graph := one()) is not None)
        return getattr(graph, _KEPT)[self._name](operation, *gradients)

    def _forget(self, _: object) -> None:
        if not any(one() is not None for one in self._graphs):
            self._entries.pop(self._name, None)


def _graphs(gradient: FunctionType) -> Iterator[Any]:
    """Yield the graph that a gradient refers to by its results, and the graphs around it."""
    kind: Any = sys.modules["tensorflow.python.framework.func_graph"].FuncGraph
    nest: Any = sys.modules["tensorflow.python.util.nest"]
    values = list(_closed_over(gradient))
    values += [value for one in values if isinstance(one, FunctionType) for value in _closed_over(one)]
    graph: Any = next((one.graph for one in nest.flatten(values) if hasattr(one, "graph")), None)
    while isinstance(graph, kind):
        yield graph
        graph = graph.outer_graph


def _closed_over(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            yield cell.cell_contents
