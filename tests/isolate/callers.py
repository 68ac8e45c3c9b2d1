"""Callers that lease GPUs of a machine of two, for the tests of leases and of the lease file."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.config.parser import parse
from tfgpu_magic.isolate import offer
from tfgpu_magic.isolate.lease import Abandoned, Lease
from tfgpu_magic.isolate.lease_file import LeaseTable
from tfgpu_magic.isolate.leases import Leases
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot

NOTHING = parse("growth")


def machine(gpus: int) -> Snapshot:
    """Return a snapshot of GPUs of 8 GiB of which nothing is used."""
    found = (Gpu(index=n, uuid=f"GPU-{n}", name="A GPU", total=8 * GIB, free=8 * GIB) for n in range(gpus))
    return Snapshot(time=time.time(), gpus=tuple(found))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Leases:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(offer, "look", lambda *_: machine(2))
    return Leases(LeaseTable())


class Caller(threading.Thread):
    """Leases GPUs, and has them until it is told to let go."""

    def __init__(self, led: Leases, name: str, gpus: int = 1, words: str = "growth") -> None:
        super().__init__(daemon=True, name=name)
        self._ledger, self._gpus, self._words = led, gpus, words
        self.has: tuple[int, ...] = ()
        self.lease = Lease(NOTHING)
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        with (
            contextlib.suppress(Abandoned),
            self._ledger.lease(parse(self._words), self._gpus, wanted=lambda: not self.over.is_set()) as lease,
        ):
            self.lease = lease
            self.has = tuple(device.gpu.index for device in lease.devices)
            self.over.wait()

    def end(self) -> None:
        self.over.set()
        self._ledger.stir()
        self.join()


def waits(led: Leases, callers: int) -> None:
    """Wait until so many are in the table, and have said what they need or have it."""

    def there() -> bool:
        with led._changed, led._table.turn() as page:
            entries = list(page.entries.values())
        return len(entries) == callers and all(entry.needs or entry.claims for entry in entries)

    until(there)
