"""Keeps out of a cell what TensorFlow logs at its import before it reads the variable for that: the note on oneDNN.

What it writes to the error output meanwhile goes to a file in memory, and what is no noise is written afterwards. The
noise is kept until somebody wants to see it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_NOISE = re.compile(rb"[IW][0-9]{4} [0-9:.]+ +[0-9]+ \S+\] |WARNING: All log messages before absl::InitializeLog\(\)")
"""The beginning of a line of absl's log below an error."""

_kept_out: list[bytes] = []
"""The lines that were kept out, and not shown since."""


def keep_out() -> None:
    """Keep it out when TensorFlow is imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def let_in() -> None:
    """Show it, as without this module, and also what was kept out until now."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    _write(_kept_out)
    _kept_out.clear()


class _Finder(MetaPathFinder):
    """Finds TensorFlow where others do, with a loader that is quiet."""

    def __init__(self) -> None:
        self._asks_others = False

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of TensorFlow; of any other module None, so that the next finder is asked."""
        del path, target
        if name != "tensorflow" or self._asks_others:
            return None
        self._asks_others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks_others = False
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _QuietLoader(spec.loader)
        return spec


class _QuietLoader(Loader):
    """A loader that executes its module with the log kept out; all else is the other loader's."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with _without_noise():
            self._loader.exec_module(module)


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Have this process's error output wait until the end of the block, and leave the noise out."""
    with contextlib.ExitStack() as stack:
        try:
            shown = os.dup(2)
            stack.callback(os.close, shown)
            kept = stack.enter_context(os.fdopen(os.memfd_create("tfgpu_magic-log"), "rb"))
            os.dup2(kept.fileno(), 2)
        except OSError:  # no error output, no descriptors left, or an old kernel: the log is shown
            yield
            return
        try:
            yield
        finally:
            os.dup2(shown, 2)
            kept.seek(0)
            lines = kept.readlines()
            _kept_out.extend(filter(_NOISE.match, lines))
            _write([line for line in lines if not _NOISE.match(line)])


def _write(lines: Sequence[bytes]) -> None:
    """Write lines to the error output, where there is one."""
    text = b"".join(lines)
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(2, text) :]
