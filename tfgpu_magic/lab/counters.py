"""Counts who has held how much GPU memory for how long, and how much of it without use: `UsageTotals`.

The service that reads the GPUs for all users goes on with each reading of the lists, and writes the file `hours` beside
the machine's board, for itself and the exporter alone (mode 0640: a month of somebody's hours is nobody else's), and
`hours-UID` for each user, who can read that one, too. They are JSON, and columns whose values of one index belong
together:

    {"boot": 1187, "since": 1764150000.0, "at": 1764153600.0, "totals": {
        "uuid": ["GPU-..", ..], "uid": [1001, ..], "held_byte_seconds": [3.1e14, ..],
        "held_unused_byte_seconds": [0.0, ..], "unknown_process_seconds": [0.0, ..]}}

`since` is when counting began and `at` the time of the last reading counted, in seconds since the epoch; a `uid` that
is not known is null. A later version adds keys and columns, an earlier one passes over them, and what is missing is 0.

Hours begin at zero with each boot, as /run does, and never go back in between. Prometheus takes a counter that is
lower than before for one that began anew, and adds all of it: a copy on a disk that was older than the last scrape by
minutes would count months twice. What is scraped outlives the boot in Prometheus.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import struct
from collections import defaultdict
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.machine.board import machine_board
from tfgpu_magic.machine.board.directory import boot_id
from tfgpu_magic.machine.board.unused import AFTER, LONGEST_GAP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfgpu_magic.ground.snapshot import Process, Snapshot
    from tfgpu_magic.machine.board.directory import BoardDirectory

HOURS = "hours"
MOST = 20_000
"""Pairs of a GPU and a user that are told apart; what further users hold counts as that of nobody known."""
_LONGEST = 16 * 2**20  # bytes of a file that is read
_COLUMNS = {
    "held": "held_byte_seconds",
    "unused": "held_unused_byte_seconds",
    "unknown": "unknown_process_seconds",
}

Holder = tuple[str, int, "int | None"]
"""A GPU's UUID, or its label, and a process: its pid, and when it began."""
Sizes = dict[Holder, tuple[tuple[float, int], ...]]
"""What processes have held lately: since when, in seconds since the epoch, how many bytes."""
Pair = tuple[str, int | None]
"""A GPU's UUID, or its label where it has none, and the number of a user, None where that is not known."""


class Total(NamedTuple):
    """What the processes of a user have held of a GPU.

    Attributes:
        held: byte-seconds.
        unused: those of them in which memory was held without use, as `unused.IdleTracker` has it.
        unknown: seconds of each process of which the driver told no bytes; they are in neither figure.
    """

    held: float = 0.0
    unused: float = 0.0
    unknown: float = 0.0


class UsageTotals:
    """The totals since a time.

    Args:
        totals: those that an earlier service has left.
        since: when counting began, in seconds since the epoch; None is the first reading.
        past: the last reading that is counted.

    Attributes:
        totals: what was held, by GPU and user.
        since: when counting began; None as long as nothing was.
    """

    def __init__(
        self, totals: Mapping[Pair, Total] | None = None, since: float | None = None, past: Snapshot | None = None
    ) -> None:
        self.totals = dict(totals or {})
        self.since = since
        self._past = past
        self._sizes = _sizes(past, {}) if past else {}

    @property
    def at(self) -> float | None:
        """When the last reading was, in seconds since the epoch."""
        return self._past.listed_at if self._past else None

    def step(self, snapshot: Snapshot) -> None:
        """Go on to a reading of the lists; one that failed, and one without lists of its own, change nothing."""
        if snapshot.listed_at is None or snapshot.error or snapshot.listed_at == self.at:
            return
        for (uuid, user), more in held_between(self._past, snapshot, self._sizes).items() if self._past else ():
            pair = (uuid, user) if (uuid, user) in self.totals or len(self.totals) < MOST else (uuid, None)
            self.totals[pair] = _sum(self.totals.get(pair, Total()), more)
        self.since = snapshot.listed_at if self.since is None else self.since
        seen = self._past is not None and 0 < _length(self._past, snapshot) <= LONGEST_GAP
        self._past, self._sizes = snapshot, _sizes(snapshot, self._sizes if seen else {})

    def to_json(self) -> str:
        """Return the text of the file."""
        pairs, totals = list(self.totals), self.totals.values()
        columns = {name: [getattr(total, field) for total in totals] for field, name in _COLUMNS.items()}
        named = {"uuid": [uuid for uuid, _ in pairs], "uid": [user for _, user in pairs]}
        return json.dumps({"boot": boot_id(), "since": self.since, "at": self.at, "totals": named | columns})

    @classmethod
    def from_json(cls, text: str, past: Snapshot | None = None) -> UsageTotals:
        """Parse what `to_json` returned, of this version or another.

        Args:
            text: the text of the file.
            past: the reading that was published last, if it is known.

        Raises:
            ValueError: the text is not one of these, or is of an earlier boot.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            found, nothing = fields["totals"], [0.0] * len(fields["totals"]["uuid"])
            if fields["boot"] != boot_id():
                raise ValueError("of an earlier boot")
            columns = [list(map(_figure, found.get(name, nothing))) for name in _COLUMNS.values()]
            pairs = [(str(uuid), user) for uuid, user in zip(found["uuid"], map(_user, found["uid"]), strict=True)]
            totals = starmap(Total, zip(*columns, strict=True))
            return cls(dict(zip(pairs, totals, strict=True)), _figure(fields["since"]), past)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no hours: {error}") from error


def held_between(before: Snapshot, now: Snapshot, sizes: Sizes) -> dict[Pair, Total]:
    """Return what was held between two readings of the lists: until the second one all is as it was at the first.

    Memory is known to be unused when it has been so for `unused.AFTER`; then what was held since its use is added.
    Nothing is known of a gap beyond `unused.LONGEST_GAP`.

    Args:
        before: the first reading.
        now: the second.
        sizes: what the processes of the first one have held until it.
    """
    length, end = _length(before, now), now.listed_at or 0.0
    found: defaultdict[Pair, Total] = defaultdict(Total)
    if not 0 < length <= LONGEST_GAP:
        return found
    later = {holder: row.unused for holder, row in _holders(now) if row.unused is not None}
    for holder, row in _holders(before):
        held = unused = (row.held or 0) * length
        if row.unused is None:
            unused = _held_since(later[holder], end, sizes[holder]) if holder in later else 0.0
        pair = holder[0], row.uid
        found[pair] = _sum(found[pair], Total(held, unused, length if row.held is None else 0.0))
    return found


def _length(before: Snapshot, now: Snapshot) -> float:
    return (now.listed_at or 0.0) - (before.listed_at or 0.0)


def _holders(snapshot: Snapshot) -> Iterator[tuple[Holder, Process]]:
    gpus = {gpu.label: gpu.uuid or gpu.label for gpu in snapshot.gpus if gpu.listed}
    for row in snapshot.processes:
        if row.gpu in gpus:
            yield (gpus[row.gpu], row.pid, row.began), row


def _sizes(snapshot: Snapshot, earlier: Sizes) -> Sizes:
    """Return what a reading's processes have held for as long as it may turn out later that they used none of it."""
    at, found = snapshot.listed_at or 0.0, Sizes()
    for holder, row in _holders(snapshot):
        sizes, held = earlier.get(holder, ()), row.held or 0
        if not sizes or sizes[-1][1] != held:
            old = sum(until < at - AFTER - LONGEST_GAP for until, _ in sizes[1:])
            sizes = (*sizes[old:], (at, held))
        found[holder] = sizes
    return found


def _held_since(since: float, end: float, sizes: Sequence[tuple[float, int]]) -> float:
    """Return the byte-seconds held from one time to another; before the first size that is known it was the same."""
    parts = pairwise(((since, sizes[0][1]), *sizes[1:], (end, 0)))
    return sum(held * max(0.0, until - max(since, start)) for (start, held), (until, _) in parts)


def _sum(one: Total, other: Total) -> Total:
    return Total(one.held + other.held, one.unused + other.unused, one.unknown + other.unknown)


def _figure(value: object) -> float:
    """Return what was written of a figure.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, int | float) and 0 <= value < math.inf:
        return float(value)
    raise ValueError(f"no figure: {value!r}")


def _user(value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    raise ValueError(f"no user: {value!r}")


def read_totals(place: BoardDirectory, past: Snapshot | None = None, name: str = HOURS) -> UsageTotals | None:
    """Return what is in a file; None where there is none that can be read, is whole and of this boot.

    Args:
        place: the directory of the machine's board.
        past: as for `Hours.from_json`.
        name: the file's.
    """
    try:
        fd = place.open(name, os.O_RDONLY)
    except (OSError, MonitorError):
        return None
    with os.fdopen(fd, "rb") as file, contextlib.suppress(OSError, ValueError):
        return UsageTotals.from_json(file.read(_LONGEST).decode(), past)
    return None


def own_totals() -> tuple[float, Total] | None:
    """Return since when this user's hours are counted, and what they are; None where that is not known now."""
    look = machine_board.read_published()
    if look is None or look.stale_since is not None:
        return None
    try:
        with contextlib.closing(machine_board.MachineDirectory()) as place:
            found = read_totals(place, name=f"{HOURS}-{os.geteuid()}")
    except (MonitorError, OSError):
        return None
    if found is None or found.since is None:
        return None
    return found.since, functools.reduce(_sum, found.totals.values(), Total())


class UsageTotalsFiles:
    """Counts for the service that writes the machine's board, and goes on with what an earlier one has left.

    Args:
        place: the directory of the board.
        past: what the earlier service has published last.
    """

    def __init__(self, place: BoardDirectory, past: Snapshot | None) -> None:
        self._place = place
        self._hours = read_totals(place, past) or UsageTotals()
        self._written: dict[int, dict[Pair, Total]] = {}

    def __call__(self, snapshot: Snapshot) -> None:
        """Go on to a reading, which has been published, and write the files anew that it changes.

        Raises:
            OSError: one cannot be written; the next reading tries again, and nothing is lost.
            MonitorError: something else is in the way of a file.
        """
        self._hours.step(snapshot)
        self._write(HOURS, self._hours)
        owns: defaultdict[int, dict[Pair, Total]] = defaultdict(dict)
        for pair, total in self._hours.totals.items():
            if pair[1] is not None:
                owns[pair[1]][pair] = total
        for user, totals in owns.items():
            if self._written.get(user) != totals:
                with contextlib.suppress(OSError):  # a number that is nobody's here keeps no other user's from its file
                    self._write(f"{HOURS}-{user}", UsageTotals(totals, self._hours.since), user)
                    self._written[user] = totals

    def _write(self, name: str, hours: UsageTotals, reader: int | None = None) -> None:
        def share(fd: int) -> None:
            os.fchmod(fd, 0o640)
            if reader is not None:
                os.setxattr(fd, "system.posix_acl_access", _readable_by(reader))

        os.close(self._place.rewrite(name, hours.to_json().encode(), share))


def _readable_by(user: int) -> bytes:
    """Return the access list of a file of mode 0640 that one more user can read. Source: linux/posix_acl_xattr.h."""
    owner, named, group, mask, other, nobody = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF
    entries = ((owner, 6, nobody), (named, 4, user), (group, 4, nobody), (mask, 4, nobody), (other, 0, nobody))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
