"""Marks the tests that start no process, by what their modules import; one that starts one all the same fails."""

from __future__ import annotations

import ast
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[1]

STARTERS = {
    "distributed",
    "jupyter_client",
    "keras",
    "multiprocessing",
    "playwright",
    "psutil",
    "pty",
    "subprocess",
    "tensorflow",
    "tfgpu_magic.isolate",
    "tfgpu_magic.isolate.process.forkserver_client",
    "tfgpu_magic.isolate.process",
    "tfgpu_magic.simgpu",
}
"""What tests with processes import, they or the helpers that they import."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        module = ".".join(item.path.relative_to(ROOT).with_suffix("").parts)
        if not _imports_a_starter(module) and not item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.fast)


@pytest.fixture(autouse=True)
def no_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a test fail that is marked so and starts a process."""
    if request.node.get_closest_marker("fast"):
        monkeypatch.setattr(subprocess.Popen, "__init__", _refuse)
        monkeypatch.setattr(os, "fork", _refuse)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    pytest.fail("This test starts a process. Mark it: @pytest.mark.processes")


@cache
def _imports_a_starter(module: str) -> bool:
    names = _imports(module)
    if not STARTERS.isdisjoint(names | {name.partition(".")[0] for name in names}):
        return True
    own = {name for name in names if name.startswith(("tests.", "scripts.")) and name != module}
    return any(map(_imports_a_starter, sorted(own)))


def _imports(module: str) -> set[str]:
    path = ROOT.joinpath(*module.split("."))
    file = path.with_suffix(".py") if not path.is_dir() else path / "__init__.py"
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())) if file.exists() else ():
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return names
