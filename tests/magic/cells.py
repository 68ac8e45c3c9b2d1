"""Cells below each other, each with what a person reads under it: the rows of tables, and what judges them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from tests.frameworks.cells_on_machine import Play, in_a_process, stage
from tfgpu_magic.simgpu import Machine

__all__ = ["IMPORT", "NOT", "Cells", "Play", "in_a_process", "playing"]

NOT = "not: "
"""Begins what may not be read under a cell."""

IMPORT = "import tensorflow as tf"


class Cells:
    """Cells in one IPython, below the one that loads the extension.

    A cell is a source, or a source with texts that are to be read under it.

    Args:
        cells: the cells.
        loaded: what is to be read under the one that loads the extension.
        never: what is read under none, large or small.
        env: variables that are set.
    """

    def __init__(
        self, *cells: str | tuple[str, ...], loaded: str = "", never: str = "", env: Mapping[str, str] | None = None
    ) -> None:
        self._cells = [("%load_ext tfgpu_magic", loaded), *((one,) if isinstance(one, str) else one for one in cells)]
        self._never, self._env = never, env or {}

    def play(self, play: Play) -> list[str]:
        """Run the cells, and return what was read under each, without the first one."""
        said = play(self._env, [source for source, *_ in self._cells])
        for (source, *parts), text in zip(self._cells, said, strict=True):
            for part in parts:
                assert (part.removeprefix(NOT) in text) != part.startswith(NOT), f"{source!r}: {part!r} in\n{text}"
        assert not self._never or self._never.lower() not in "".join(said).lower(), "\n".join(said)
        return said[1:]


@contextlib.contextmanager
def playing(gpus: str, **machine: Any) -> Iterator[tuple[Play, Machine]]:
    """Give a stage, on a machine of its own, on which TensorFlow's import takes milliseconds."""
    with Machine.create(gpus, **machine) as one, stage(one, again=True) as play:
        yield play, one
