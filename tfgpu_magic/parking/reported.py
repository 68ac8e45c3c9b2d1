"""What a process reports of its parking, for the rows of every view: the figures of the mechanism that it wraps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tfgpu_magic.frameworks import self_report
from tfgpu_magic.model.parts import parts
from tfgpu_magic.parking.mechanism import FrameworkMechanism


class ReportedMechanism:
    """A `Mechanism` whose figures are in this process's report from when it is made.

    Args:
        mechanism: what moves the arrays.
    """

    def __init__(self, mechanism: FrameworkMechanism) -> None:
        self._mechanism = mechanism
        self._back: dict[str, float] = {}
        self._without = False
        self.away = mechanism.away
        self_report.away = self._reported

    def take_away(self, wanted: Callable[[], bool], show: Callable[[str], object]) -> None:
        """Move all that can leave to host memory, and have others see it."""
        self._back = {}
        try:
            self._mechanism.take_away(wanted, show)
        finally:
            _announce(wait=True)

    def bring_back(self, wanted: Callable[[], bool], show: Callable[[str], object]) -> None:
        """Bring every array back, and have others see how long that took."""
        begun, were = time.monotonic(), self._mechanism.parked_on()
        try:
            self._mechanism.bring_back(wanted, show)
        finally:
            if not self.away():
                self._back = dict.fromkeys(were, time.monotonic() - begun)
            _announce(wait=False)

    def make_unreadable(self) -> None:
        """Have all that reads what is away raise an error from now on; nobody calls this process parked any more."""
        self._mechanism.make_unreadable()
        self._without = True
        _announce(wait=False)

    def _reported(self) -> Mapping[str, tuple[int | None, float | None]]:
        parked = {} if self._without else self._mechanism.parked_on()
        return {gpu: (parked.get(gpu), None if parked else self._back.get(gpu)) for gpu in {**parked, **self._back}}


def _announce(*, wait: bool) -> None:
    for announce in parts("announce"):
        announce(wait=wait)
