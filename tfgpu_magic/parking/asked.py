"""A request that the helper is working on: it may be called off, by who waits for it, and told how it gets on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgpu_magic.parking.ledger import Key
    from tfgpu_magic.parking.messages import Progress, Request


class Asked:
    """A request.

    Args:
        request: what is asked for.
        key: the process.
        tell: takes each progress.

    Attributes:
        said: the latest progress; None where there is none yet.
    """

    def __init__(self, request: Request, key: Key, tell: Callable[[Progress], None] = lambda _: None) -> None:
        self.request, self.key = request, key
        self.said: Progress | None = None
        self._tell = tell
        self._off = asyncio.Event()

    def tell(self, progress: Progress) -> None:
        """Tell its asker how it gets on."""
        self.said = progress
        self._tell(progress)

    @property
    def called_off(self) -> bool:
        """Whether nobody wants it any more."""
        return self._off.is_set()

    def call_off(self) -> None:
        """Have it end as soon as nothing is under way."""
        self._off.set()

    async def pause(self, seconds: float) -> None:
        """Wait, unless it is called off meanwhile."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._off.wait(), seconds)
