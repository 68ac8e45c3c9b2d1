"""Keeps the last few states, and makes the messages from each of them to the newest, once for all clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tfgpu_magic.views import message

if TYPE_CHECKING:
    from tfgpu_magic.views.message import State


class States:
    """The last states, and the newest.

    Args:
        kept: how many states; a client that has an older one needs a full message.

    Attributes:
        sequence: the number of the newest state; 0 before there is one.
    """

    def __init__(self, kept: int) -> None:
        self.sequence = 0
        self._kept = kept
        self._states: dict[int, State] = {}
        self._ticks: dict[int, bytes] = {}

    @property
    def newest(self) -> State:
        """The newest state; empty before there is one."""
        return self._states.get(self.sequence, cast("State", {}))

    def add(self, state: State) -> None:
        """Make a state the newest, unless the newest is equal."""
        if state == self.newest:
            return
        self.sequence += 1
        self._states[self.sequence] = state
        self._states.pop(self.sequence - self._kept, None)
        self._ticks.clear()

    def tick(self, base: int) -> bytes | None:
        """Return the message that brings a client from state `base` to the newest; None when `base` is no longer kept.

        From the newest to itself it has the time alone: nothing is new.
        """
        if base not in self._ticks:
            before, after = self._states.get(base), self.newest
            if before is None:
                return None
            changes = message.patch(before, after) or {"time": after["time"]}
            self._ticks[base] = message.tick(self.sequence, base, changes).encode()
        return self._ticks[base]
