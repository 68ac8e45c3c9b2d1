"""Who held how much for how long: counted without a clock, compared with exact sums, and kept in the file `hours`."""

from __future__ import annotations

import json
import stat
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import GIB
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.lab import counters
from tfgpu_magic.lab.counters import HOURS, Total, UsageTotals, UsageTotalsFiles
from tfgpu_magic.machine.board.directory import boot_id
from tfgpu_magic.machine.board.machine_board import MachineDirectory
from tfgpu_magic.machine.board.unused import AFTER, LONGEST_GAP, IdleTracker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfgpu_magic.lab.counters import Pair

ANN, BEN = 1001, 1002
GPUS = (Gpu(index=0, uuid="GPU-0"), Gpu(index=1, uuid="GPU-1"))


def reading(at: float, *rows: Process, gpus: tuple[Gpu, ...] = GPUS) -> Snapshot:
    return Snapshot(time=at, gpus=gpus, processes=rows, listed_at=at)


def row(
    held: int | None, *, gpu: str = "0", pid: int = 7, uid: int | None = ANN, unused: float | None = None
) -> Process:
    return Process(gpu, pid, "C", held, uid=uid, began=5, unused=unused)


def counted(readings: Iterable[Snapshot]) -> dict[Pair, Total]:
    found = UsageTotals()
    for one in readings:
        found.step(one)
    return found.totals


def test_what_is_held_counts_until_the_next_reading_by_user_and_gpu() -> None:
    first = reading(
        100, row(4), row(8, pid=8), row(2, gpu="1", pid=9), row(1, pid=10, uid=BEN), row(3, pid=11, uid=None)
    )

    assert counted([first, reading(110, row(400)), reading(112)]) == {
        ("GPU-0", ANN): Total(held=12 * 10 + 400 * 2),
        ("GPU-1", ANN): Total(held=20),
        ("GPU-0", BEN): Total(held=10),
        ("GPU-0", None): Total(held=30),
    }


REFUSED = (Gpu(index=0, uuid="GPU-0", listed=False), GPUS[1])
UNUSED = row(100, unused=100.0)


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([reading(100, row(1)), reading(100 + LONGEST_GAP, row(1))], Total(held=LONGEST_GAP)),
        ([reading(100, row(1)), reading(100 + LONGEST_GAP + 0.1, row(1))], Total()),
        ([reading(100, row(1)), reading(50, row(1))], Total()),  # a clock that is set back
        # The minute before memory is known to be unused is added then, by what was held in it.
        ([reading(100, row(1)), reading(159, UNUSED), reading(161, UNUSED)], Total(59 + 200, 59 + 200)),
        ([reading(100, row(1)), reading(159, UNUSED), reading(161, row(1)), reading(162)], Total(260, 259)),
        (
            [reading(100, row(1)), reading(110, row(None)), reading(159, UNUSED), reading(161, UNUSED)],
            Total(10 + 200, 10 + 200, 49),
        ),
        ([reading(150, row(2)), reading(160, row(2, unused=100.0)._replace(began=6))], Total(held=20)),  # another one
        ([reading(100, row(None), row(4, pid=8)), reading(110, row(9))], Total(held=40, unknown=10)),
        ([reading(100, row(4)), Snapshot(time=105.0, error="NVML: unknown error."), reading(110)], Total(held=40)),
        ([reading(100, row(4), gpus=REFUSED), reading(110, row(4))], Total()),
        ([reading(100, row(4)), reading(104, row(4))._replace(listed_at=100.0), reading(110)], Total(held=40)),
    ],
)
def test_what_a_user_has_held_by_any_readings(readings: list[Snapshot], expected: Total) -> None:
    assert counted(readings).get(("GPU-0", ANN), Total()) == expected


STEP = st.sampled_from((0.1, 2.0, 10.0, 59.9, LONGEST_GAP, 200.0))
LIFE = st.tuples(
    st.lists(st.integers(0, 80 * GIB), min_size=1, max_size=7).map(lambda sizes: (sizes * 61)[:61]),
    st.sampled_from((ANN, BEN, None)),
    st.lists(st.sampled_from((None, 0, 0, 0, 50)), max_size=60),  # None: it is not there
)


def exact(times: Sequence[float], held: Sequence[int], use: Sequence[int | None]) -> tuple[Fraction, Fraction]:
    """Return the byte-seconds of one process, and those without use, from what it is at each reading alone."""
    at = [Fraction(time) for time in times]
    lengths = [end - start if end - start <= LONGEST_GAP else Fraction(0) for start, end in pairwise(at)]
    sizes = [size * length for size, length in zip(held, lengths, strict=False)]
    whole = sum((size for size, there in zip(sizes, use, strict=False) if there is not None), Fraction(0))
    unused, number = Fraction(0), 0
    while number < len(use):
        if use[number] != 0:
            number += 1
            continue
        first = last = number
        while last < len(lengths) and last + 1 < len(use) and use[last + 1] == 0 and lengths[last]:
            last += 1
        if first and use[first - 1] is not None and lengths[first - 1]:
            first -= 1  # it was used at some time since
        if at[last] - at[first] >= AFTER:
            unused += sum(sizes[first : last + 1])
        number = last + 1
    return whole, unused


@given(st.lists(STEP, min_size=1, max_size=60), st.lists(LIFE, max_size=4), st.integers(1, 60))
def test_over_any_day_it_counts_what_exact_sums_do(
    steps: list[float], lives: list[tuple[list[int], int | None, list[int | None]]], restart: int
) -> None:
    times = [1e6]
    for step in steps:
        times.append(times[-1] + step)
    lives = [(held, user, (use + [None] * len(times))[: len(times)]) for held, user, use in lives]
    tracker, found = IdleTracker(), UsageTotals()
    past: Snapshot | None = None
    for number, at in enumerate(times):
        rows = [
            Process("0", 10 + pid, "C", held[number], use[number], uid=user, began=pid)
            for pid, (held, user, use) in enumerate(lives)
            if use[number] is not None
        ]
        if number == restart:
            found = UsageTotals.from_json(found.to_json(), past and Snapshot.from_json(past.to_json()))
        past = tracker.step(reading(at, *rows))
        found.step(past)

    for user in (ANN, BEN, None):
        sums = [exact(times, held, use) for held, one, use in lives if one == user]
        held, unused = (float(sum(column, Fraction(0))) for column in (zip(*sums, strict=True) if sums else ((), ())))
        assert found.totals.get(("GPU-0", user), Total()) == pytest.approx((held, unused, 0.0), rel=1e-9)


def test_further_users_than_are_told_apart_are_nobody_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST", 2)
    crowd = [row(1, pid=uid, uid=uid) for uid in range(1, 6)]

    assert counted([reading(100, *crowd), reading(101, *crowd), reading(102)]) == {
        ("GPU-0", 1): Total(held=2),
        ("GPU-0", 2): Total(held=2),
        ("GPU-0", None): Total(held=6),
    }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MachineDirectory]:
    monkeypatch.setenv("TFGPU_SIMGPU", str(tmp_path / "machine"))
    tmp_path.chmod(0o755)
    (tmp_path / "machine.run").mkdir(mode=0o755)
    place = MachineDirectory()
    yield place
    place.close()


def test_a_service_goes_on_with_the_file_that_an_earlier_one_has_left(place: MachineDirectory) -> None:
    first = UsageTotalsFiles(place, None)
    for at in (100.0, 102.0):
        first(reading(at, row(5)))
    second = UsageTotalsFiles(place, reading(102.0, row(5)))
    second(reading(106.0, row(5, unused=100.0)))
    found = counters.read_totals(place)

    assert found is not None
    assert (found.totals, found.since) == ({("GPU-0", ANN): Total(held=30, unused=30)}, 100.0)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.path.iterdir()}
    assert modes == {HOURS: 0o640, f"{HOURS}-{ANN}": 0o640}


def test_each_user_has_a_file_of_the_own_hours_that_is_written_as_they_grow(place: MachineDirectory) -> None:
    counts = UsageTotalsFiles(place, None)
    for at in (100.0, 102.0):
        counts(reading(at, row(5), row(3, gpu="1"), row(7, pid=2, uid=BEN)))
    counts(reading(104.0, row(7, pid=2, uid=BEN)))
    before = (place.path / f"{HOURS}-{ANN}").stat().st_mtime_ns
    counts(reading(106.0))
    own = {user: counters.read_totals(place, name=f"{HOURS}-{user}") for user in (ANN, BEN)}

    assert {user: hours and hours.totals for user, hours in own.items()} == {
        ANN: {("GPU-0", ANN): Total(held=20), ("GPU-1", ANN): Total(held=12)},
        BEN: {("GPU-0", BEN): Total(held=42)},
    }
    assert {hours and hours.since for hours in own.values()} == {100.0}
    assert (place.path / f"{HOURS}-{ANN}").stat().st_mtime_ns == before  # nothing of hers has grown


def test_another_versions_file_is_read_as_far_as_it_is_known(place: MachineDirectory) -> None:
    first = UsageTotalsFiles(place, None)
    for at in (100.0, 102.0):
        first(reading(at, row(5)))
    fields = json.loads((place.path / HOURS).read_text())
    fields["more"] = fields["totals"]["more"] = ["what a later version says"]
    del fields["at"], fields["totals"]["unknown_process_seconds"]
    (place.path / HOURS).write_text(json.dumps(fields))
    found = counters.read_totals(place)

    assert found is not None
    assert found.totals == {("GPU-0", ANN): Total(held=10)}


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"totals": {"uuid": ["GPU-0"]', '{"totals": 3}', "\udcff"]
    + [
        json.dumps({"boot": of, "since": 1.0, "totals": {"uuid": ["GPU-0"], "uid": [7]} | totals})
        for of, totals in (
            (-1, {}),
            (None, {"held_byte_seconds": [-1.0]}),
            (None, {"held_byte_seconds": ["1"]}),
            (None, {"held_byte_seconds": [1e999]}),
            (None, {"held_byte_seconds": [1.0, 2.0]}),
            (None, {"uid": ["ann"]}),
        )
    ],
)
def test_a_file_that_is_not_whole_or_of_an_earlier_boot_is_none_and_counting_begins_anew(
    place: MachineDirectory, text: str
) -> None:
    text = text.replace('"boot": null', f'"boot": {boot_id()}')
    (place.path / HOURS).write_text(text, errors="surrogateescape")
    anew = UsageTotalsFiles(place, None)
    anew(reading(100.0, row(5)))
    found = counters.read_totals(place)

    assert found is not None
    assert (found.totals, found.since) == ({}, 100.0)


def test_a_link_in_its_place_is_neither_read_nor_followed(place: MachineDirectory, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("of a user")
    for name in (HOURS, "new-" + HOURS):
        (place.path / name).symlink_to(elsewhere)
    before = counters.read_totals(place)
    UsageTotalsFiles(place, None)(reading(100.0, row(5)))

    assert before is None
    assert elsewhere.read_text() == "of a user"
    assert counters.read_totals(place) is not None
