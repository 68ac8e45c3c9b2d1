"""A small `Mechanism` for the gate's scenes in a real kernel: arrays of NumPy's are emptied, and filled again.

What runs while they are empty sees it: their digest is another one then. Files in a folder show the test what happens,
and let it keep the way back from being gone.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from IPython import get_ipython

from tfgpu_magic.parking.inside import ipython
from tfgpu_magic.parking.inside.process import GatedProcess

AWAY, NO_ROOM, WAITS = "away", "no-room", "waits"
"""Files of the folder: the arrays are empty; they are not filled (the test makes it); somebody waits for that."""


class Shelf:
    """The arrays of this kernel, and where they are.

    Args:
        folder: that of the files.
    """

    def __init__(self, folder: str) -> None:
        shell: Any = get_ipython()
        self._shell, self._folder = shell, Path(folder)
        self._arrays = [np.random.default_rng(seed).random(size) for seed, size in enumerate((3, 1000, 100_000))]
        self._kept: list[Any] = []
        self._process = GatedProcess(shell, self)

    def digest(self) -> str:
        """Return the digest of what is in the arrays now."""
        return hashlib.sha256(b"".join(array.tobytes() for array in self._arrays)).hexdigest()

    def park(self) -> None:
        """Have this kernel parked at the end of the cell that runs, and why it is not printed below it."""
        ipython.at_end_of_cell(self._shell, lambda: print(*self._process.park()))

    def away(self) -> bool:
        return bool(self._kept)

    def take_away(self, _: Callable[[], bool], __: Callable[[str], object]) -> None:
        self._kept = [array.copy() for array in self._arrays]
        for array in self._arrays:
            array.resize(0, refcheck=False)
        (self._folder / AWAY).touch()

    def bring_back(self, wanted: Callable[[], bool], show: Callable[[str], object]) -> None:
        show("Waiting for room.")
        while (self._folder / NO_ROOM).exists():
            (self._folder / WAITS).touch()
            if not wanted():
                return
            time.sleep(0.05)
        for array, kept in zip(self._arrays, self._kept, strict=True):
            array.resize(kept.shape, refcheck=False)
            array[...] = kept
        (self._folder / AWAY).unlink()
        self._kept = []

    def make_unreadable(self) -> None:
        raise NotImplementedError("NumPy reads an empty array")
