"""What a policy leaves for this user's other processes: its claim, and that room which it has not found is wanted."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.processes import PATIENCE
from tests.sizes import GIB
from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.engine import engine, other_processes
from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy.decide import decide
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.process_state import ProcessState
from tfgpu_magic.simgpu import Machine

WANTED = "from tfgpu_magic.claims.ledger import LEDGER; print(*LEDGER.wanted_by_others())"


@pytest.fixture(autouse=True)
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    LEDGER.forget()
    yield
    LEDGER.forget()


def elsewhere(code: str) -> str:
    """Return what another process of this user prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return done.stdout.strip()


def test_a_policy_that_cannot_be_applied_claims_nothing() -> None:
    seen = Snapshot(time=0.0, gpus=(Gpu(index=0, uuid="GPU-0", name="A GPU", total=8 * GIB, free=8 * GIB),))
    process = ProcessState(shown=("GPU-0",), given=("GPU-0",))
    claims: list[dict[str, int | None]] = []

    def claimed() -> dict[str, int | None]:
        own = LEDGER.read().own_claim(LEDGER.slot)
        return {} if own is None else {**own.had}

    with (
        contextlib.suppress(OSError),
        other_processes.decided(process, seen, partial(decide, parse("limit 1GiB"), seen)),
    ):
        claims.append(claimed())
        raise OSError
    assert [*claims, claimed()] == [{"GPU-0": GIB}, {}]


@pytest.mark.parametrize(
    ("words", "is_wanted"),
    [
        ("limit 4GiB", True),
        ("limit 7.7GiB", False),  # the driver keeps some of the 8 GiB for itself: no other process is in the way
    ],
)
def test_room_that_others_hold_is_wanted_where_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: str, is_wanted: bool
) -> None:
    with Machine.create("1x8GiB") as machine:
        for name, value in machine.environ().items():
            monkeypatch.setenv(name, value)
        machine.add_neighbour("6GiB@0")
        with pytest.raises(Refused):
            engine.apply(words)

        assert elsewhere(WANTED) == (look().gpus[0].uuid if is_wanted else "")
