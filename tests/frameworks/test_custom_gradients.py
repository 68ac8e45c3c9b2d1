"""Gradients that TensorFlow's registry keeps are left to their graphs, each by itself."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tfgpu_magic.frameworks.tensorflow import custom_gradients


def test_a_gradient_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        outer_graph = None

    captured = SimpleNamespace(graph=Graph())

    def gradient(*_: object) -> object:
        return captured

    def broken(*_: object) -> object:
        return unsortable

    unsortable = {1: captured, "a": captured}
    entries: dict[str, Any] = {"CustomGradient-1": {"type": broken}, "CustomGradient-2": {"type": gradient}}
    modules: dict[str, dict[str, Any]] = {
        "framework.ops": {"gradient_registry": SimpleNamespace(_registry=entries)},
        "framework.func_graph": {"FuncGraph": Graph},
        "util.nest": {"flatten": lambda values: [one for one in values if not isinstance(one, dict) or sorted(one)]},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, f"tensorflow.python.{name}", module)
    custom_gradients.move_to_graphs()

    assert entries["CustomGradient-1"]["type"] is broken
    assert entries["CustomGradient-2"]["type"] is not gradient
