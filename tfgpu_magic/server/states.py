"""The last few states by their numbers, and the messages that lead from one to the newest, made once for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tfgpu_magic.views import message

if TYPE_CHECKING:
    from tfgpu_magic.views.message import State


class States:
    """What was to be seen, and what is now.

    Args:
        kept: how many states; who has an older one needs all of the newest.

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
        """Let this be the newest, unless the newest is the same."""
        if state == self.newest:
            return
        self.sequence += 1
        self._states[self.sequence] = state
        self._states.pop(self.sequence - self._kept, None)
        self._ticks.clear()

    def tick(self, base: int) -> bytes | None:
        """Write what brings a client from the state `base` to the newest; None when `base` is no longer known.

        From the newest to itself it is the time alone, which says that there is nothing new.
        """
        if base not in self._ticks:
            before, after = self._states.get(base), self.newest
            if before is None:
                return None
            changes = message.patch(before, after) or {"time": after["time"]}
            self._ticks[base] = message.tick(self.sequence, base, changes).encode()
        return self._ticks[base]
