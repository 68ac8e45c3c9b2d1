"""Waits for room on GPUs: what shows and ends every wait, and the order in the queue, which is in the `ledger`.

Who came first for one of these GPUs goes first. Programs of others have no order, and neither has a line that does not
wait.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.errors import Refused, Room
from tfgpu_magic.frameworks import import_hook
from tfgpu_magic.ground import phrases, process_kind
from tfgpu_magic.ground.answer import Document
from tfgpu_magic.ground.message import Message, join_lines, msg, paragraph
from tfgpu_magic.ground.process_kind import RoomWait

if TYPE_CHECKING:
    from typing_extensions import Self

    from tfgpu_magic.claims.claim import LedgerState

T = TypeVar("T")
_Show: TypeAlias = Callable[[Message], object]

TRY_EVERY = 1.0
"""Seconds between two attempts."""
SOON = 0.7
"""Seconds that need no explanation."""

_BAR = 20  # characters
_BEHIND = msg("Another process of yours waits for the same GPU, and came first.")
_ENDS = "It goes on by itself as soon as there is room; an interrupt ends the wait."
_ORDER = msg(
    "Those of your notebooks and programs that wait for the same GPU go on in the order in which they came. Programs "
    "of others have no order: one of them may take the room first."
)


class ProgressDisplay:
    """What goes on below one cell: in a notebook in one place, elsewhere in lines; in a program, beside its errors."""

    def __init__(self, shell: Any) -> None:
        self.live, self._shell = hasattr(shell, "kernel"), shell
        self._begun = self._shown_at = time.monotonic()
        self._message: Message | None = None
        self._place, self._shown = os.urandom(8).hex(), False

    def __call__(self, message: Message | None) -> None:
        """Show a message, if there is any, in place of the one before, if the cell has waited long enough."""
        now = time.monotonic()
        if message is None or now - self._begun < SOON:
            return
        if self.live or self._message is None or now - self._shown_at >= TRY_EVERY:
            self._shown_at = now
            self.show_now(message)

    def show_now(self, message: Message) -> None:
        """Show a message in place of the one before, if it is another one."""
        if message == self._message:
            return
        self._message, document = message, Document(*str(message).splitlines())
        if self._shell is None:
            import_hook.notify(document.text())
        elif not self.live:
            print(document, flush=True)
        else:
            data, metadata = self._shell.display_formatter.format(document)
            self._shell.display_pub.publish(data, metadata, transient={"display_id": self._place}, update=self._shown)
            self._shown = True


class Wait:
    """A wait for room, which begins with the first `go_on`, and which other processes see until its block ends.

    Args:
        limit: seconds that it takes at the most; None has no end.
        show: takes messages on the wait; by default they are shown below the cell.
        job: whether it is that of a job, which is shown once, and not as a wait of this process.
        any_gpu: whether one GPU will do of those on which there could be room.
    """

    def __init__(
        self, limit: float | None = None, show: _Show | None = None, *, job: bool = False, any_gpu: bool = False
    ) -> None:
        display = ProgressDisplay(process_kind.shell())
        self.limit, self._show = limit, show or display.show_now
        self._job, self._live, self._any_gpu = job, display.live and not job, any_gpu
        self._waits: RoomWait | None = None
        self._begun = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if self._waits is not None:
            now = time.time()
            self._report(None if error else self._waits._replace(room=now))
            text = "Waited for room from {since} to {end}."
            self._show(msg(text, since=phrases.clock(self._waits.since), end=phrases.clock(now)))

    def go_on(self, why: Refused) -> float:
        """Show why it goes on, and return the seconds until the next attempt.

        Args:
            why: why there is no room now.

        Raises:
            Refused: it has taken as long as it may.
        """
        before, gpus, now = self._waits, tuple(why.retryable), time.time()
        if before is None:
            self._begun = time.monotonic()
        waits = before or RoomWait(since=now, until=None if self.limit is None else now + self.limit)
        left = TRY_EVERY if self.limit is None else self._begun + self.limit - time.monotonic()
        if before is None or gpus != before.gpus:
            needs = next(iter(why.retryable.values()), None)
            self._waits = waits._replace(gpus=gpus, needs=needs, any_gpu=self._any_gpu and len(gpus) > 1)
            self._report(self._waits)
        LEDGER.note_wanted(gpus)
        if self.limit is not None and left <= 0:
            over = msg("There was no room within {time}.", time=phrases.seconds(self.limit))
            reason = paragraph([over, why.reason.without_next]).with_next(why.reason.ways)
            raise Refused(reason, verdict=why.verdict, retryable=why.retryable)
        if before is None or self._live:
            head = paragraph([self._head(waits, left), _ENDS])
            self._show(join_lines([head, why.reason.without_next, _ORDER if self.limit else None]))
        return min(left, TRY_EVERY)

    def _head(self, waits: RoomWait, left: float) -> Message:
        begun = phrases.clock(waits.since)
        if self.limit is None or waits.until is None:
            return msg("Waiting for room since {since}.", since=begun)
        full = int(_BAR * (1 - left / self.limit))
        bar = f" {'█' * full}{'░' * (_BAR - full)}" if self._live else ","
        end = phrases.clock(waits.until)
        return msg("Waiting for room since {since}{bar} until {end} at the latest.", since=begun, bar=bar, end=end)

    def _report(self, waits: RoomWait | None) -> None:
        if not self._job:
            process_kind.room_wait = waits
            process_kind.announce()


def wait_for(attempt: Callable[[], T], check: Callable[[], object], gpus: Room, by: Wait) -> T:
    """Return what `attempt` returns as soon as there is room, and nobody who came first waits for one of these GPUs.

    Args:
        attempt: does what needs the room.
        check: raises `Refused` if there is no room, and does nothing else.
        gpus: the GPUs that it may need.
        by: how it waits.

    Raises:
        Refused: there was no room in time, or the wait was interrupted in a notebook or a session; or nobody's giving
            way would help.
    """
    with LEDGER.queued("wait", gpus) as number, by as wait:
        while True:
            try:
                with _interruptible():
                    with LEDGER.transaction() as state:
                        first = is_first(state, number, gpus)
                    check()
                if first:
                    return attempt()
                why = Refused(_BEHIND, retryable=gpus)
            except Refused as error:
                if not error.retryable:
                    raise
                why = error
            with _interruptible():
                time.sleep(wait.go_on(why))


def is_first(state: LedgerState, number: int, gpus: Collection[str]) -> bool:
    """Renew a claim to one of these GPUs, and return whether nobody who came first waits for one of them.

    It has to be called at least every `claim.ABSENT` seconds: else the claim is passed over.
    """
    state.request(number, gpus)
    return process_kind.in_worker or not state.waits_behind(
        number, gpus
    )  # which may wait for the call that this process runs


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Make an interrupt end the wait as a refusal does, if there is a cell below which that is shown."""
    try:
        yield
    except KeyboardInterrupt:
        if process_kind.shell() is None:  # a program may handle it
            raise
        raise Refused("The wait for room was interrupted.") from None
