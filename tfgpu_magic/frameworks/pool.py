"""A framework's pool on one logical GPU, as it is read: plain data. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Pool(NamedTuple):
    """A framework's pool on one logical GPU. Sizes are bytes; None is unknown. A named tuple is the quickest to make.

    Attributes:
        framework: the framework's name.
        name: the logical GPU, as the framework names it: ``GPU:0``, ``cuda:0``.
        gpu: the UUID of the GPU that it is on.
        in_use: what is in use now.
        peak: the most that was in use at once, as the framework's own functions tell it; of a `Mark`, since that.
        counted: the most since anybody has reset the counter, we included.
        exact: whether the peak is that since the mark; else it is the most that it may have been.
        touched: whether its framework has taken memory of the GPU yet; TensorFlow's logical GPUs always count.
        reached: what was in use when memory was missing; None where that is not known.
        limit: what it may take; None where nothing limits it.
        capped: whether a setting limits it, and not what the framework found free when it started.
        grows: whether it takes memory as it needs it; else it has taken all that it may.
        releases: whether what it does not use can go back to the driver while its framework lives.
        taken: what it has of the driver.
        most: the most that it had of the driver, where its limit bounds that and not what is in use.
        largest: its largest free block.
    """

    framework: str
    name: str
    gpu: str
    in_use: int
    peak: int
    counted: int = 0
    exact: bool = True
    touched: bool = True
    reached: int | None = None
    limit: int | None = None
    capped: bool = False
    grows: bool = False
    releases: bool = False
    taken: int | None = None
    most: int | None = None
    largest: int | None = None

    @property
    def level(self) -> int:
        """What was in use when memory was missing, or the most that may have been: what fails lets go of some."""
        return max(self.in_use, self.peak if self.reached is None else self.reached)

    @property
    def room(self) -> int:
        """What was free then of what it has taken; where that is unknown, of what it may take."""
        return max((self.limit or 0 if self.taken is None else self.taken) - self.level, 0)
