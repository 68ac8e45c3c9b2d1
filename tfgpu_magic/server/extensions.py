"""What rooms above add to a Jupyter server: an `Extension` of each that has a file `extends.py`."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgpu_magic.server.kernels import Kernels

Served: TypeAlias = "tuple[list[tuple[object, ...]], Callable[[], None]]"
"""Handlers for Jupyter Server, and what is called at its end."""


class Extension:
    """What a room adds, and calls `EXTENSION` in its file; each default adds nothing."""

    def serve(self, kernels: Kernels, server: Any) -> Served:  # noqa: ARG002  as a room's own has them
        """Begin with what a Jupyter server does for its kernels.

        Args:
            kernels: the server's.
            server: its application.
        """
        return [], lambda: None


def extensions() -> Iterator[Extension]:
    """Yield the extensions, in the order of their rooms' names; also where the package is in a zip."""
    package = __name__.partition(".")[0]
    for root in sys.modules[package].__path__:
        for _, room, is_package in pkgutil.iter_modules([root]):
            if is_package and PathFinder.find_spec("extends", [f"{root}/{room}"]):
                yield import_module(f"{package}.{room}.extends").EXTENSION
