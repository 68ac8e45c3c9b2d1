"""What other processes may yet take of a GPU: how promises add up, what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.figures import tensorflow
from tests.policy.test_plan import kernel, snapshot
from tests.sizes import GIB, MIB
from tfgpu_magic.claims.allocation import promises
from tfgpu_magic.claims.claim import Claim
from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.message import Severity
from tfgpu_magic.ground.report import GpuUse, Report
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.policy.decide import decide
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.promises import standing

CONTEXT = 512 * MIB
"""What is kept for CUDA's context on a GPU of 16 GiB."""

NAMES = {1: "a.ipynb", 2: "b.ipynb", 3: "train.py", 4: "maria"}


def gpu(index: int = 0, used: float = 0.0, total: int = 16) -> Gpu:
    taken = int(used * GIB)
    return Gpu(index=index, uuid=f"GPU-{index}", name="T", total=total * GIB, used=taken, free=total * GIB - taken)


def holds(pid: int, size: float, index: int = 0) -> Process:
    return Process(gpu=str(index), pid=pid, kind="C", held=int(size * GIB))


def asks(pid: int | None, limit: float | None = None, *, kind: Any = "policy", on: str = "GPU-0") -> Claim:
    """Return the claim of a process with a limit in GiB, or with growth."""
    size = None if limit is None else int(limit * GIB)
    number = pid or 99
    return Claim(number=number, slot=number, seen=0.0, kind=kind, pid=pid, had={on: size})


def planned(words: str, machine: Snapshot, *claims: Claim) -> Plan:
    process = kernel(*machine.gpus, promises=promises(machine, claims))
    return decide(parse(words), machine, process, lambda: NAMES)


def promised(plan: Plan) -> str:
    """Return what a plan says of promises."""
    return "\n".join(note for note in map(str, plan.notes) if "promised" in note)


WHOLE = Gpu(index=0, uuid="GPU-0", total=16 * GIB, reserved=GIB, used=2 * GIB, free=13 * GIB)
FIGURES = Report(pid=1, summary="", uses=(GpuUse(gpu="GPU-0", figures=tensorflow(3 * GIB)),))


@pytest.mark.parametrize(
    ("one", "processes", "claims", "reports", "found"),
    [
        # The larger of what is held and what may be taken: libraries of the second took more than the limit counts.
        (
            gpu(used=9),
            [holds(1, 2), holds(2, 7)],
            [asks(1, 4), asks(2, 4)],
            {},
            {1: (4 * GIB + CONTEXT, 2 * GIB + CONTEXT), 2: (7 * GIB, 0)},
        ),
        # What was taken is not promised again: a context is smaller than it was estimated, and all else is there.
        (gpu(used=6.6), [holds(1, 6.6)], [asks(1, 6.4)], {}, {1: (int(6.6 * GIB), 0)}),
        # Growth without a limit promises no more than it holds.
        (gpu(used=3), [holds(1, 3)], [asks(1)], {}, {1: (3 * GIB, 0)}),
        # Where the driver names no pids, a process has what it reports.
        (gpu(used=3), [holds(4711, 3)], [asks(1, 4)], {1: FIGURES}, {1: (4 * GIB + CONTEXT, GIB + CONTEXT)}),
        # A notebook that comes back from parking counts once, and a call without a process counts too.
        (
            gpu(),
            [],
            [asks(1, 3), replace(asks(1, 4, kind="return"), number=2), asks(None, 3, kind="call")],
            {},
            {1: (4 * GIB + CONTEXT, 4 * GIB + CONTEXT), None: (3 * GIB, 3 * GIB)},
        ),
        # A call that has a GPU to itself has all of it.
        (WHOLE, [holds(1, 2)], [asks(1, kind="call")], {}, {1: (15 * GIB, 13 * GIB)}),
        # What is on a GPU that is not there counts nowhere.
        (gpu(), [], [asks(1, 4, on="GPU-9")], {}, {}),
    ],
)
def test_a_promise_is_what_a_process_may_have_in_all_and_what_it_has_not_taken(
    one: Gpu, processes: list[Process], claims: list[Claim], reports: dict[int, Report], found: dict[int | None, Any]
) -> None:
    machine = Snapshot(time=0.0, gpus=(one,), processes=tuple(processes))

    assert {promise.pid: (promise.total, promise.owed) for promise in promises(machine, claims, reports)} == found


@pytest.mark.parametrize(
    ("gpus", "claims", "words", "ways"),
    [
        # Room for libraries and promises is left, and there is no other program.
        ((gpu(used=6.6),), [asks(1, 6.4)], "limit 12GiB", ("limit 7.1GiB",)),
        ((gpu(used=15.2),), [asks(1, 6.4)], "limit 12GiB", ()),
        ((gpu(used=2),), [asks(1, 8)], "limit 15GiB", ("limit 7GiB",)),
        ((gpu(used=6.6), gpu(1)), [asks(2, 10, on="GPU-1")], "limit 12GiB", ("limit 5GiB",)),  # also on another GPU
    ],
)
def test_what_others_are_promised_is_not_offered(
    gpus: tuple[Gpu, ...], claims: list[Claim], words: str, ways: tuple[str, ...]
) -> None:
    machine = Snapshot(time=0.0, gpus=gpus, processes=(holds(1, (gpus[0].used or 0) / GIB),))
    with pytest.raises(Refused) as caught:
        planned(words, machine, *claims)

    assert tuple(way.words for way in caught.value.tries) == ways
    assert not [
        note for way in ways for note in planned(way, machine, *claims).notes if note.severity is not Severity.NOTE
    ]


def test_what_was_taken_leaves_the_rest_to_others_without_a_warning() -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=6.6),), processes=(holds(1, 6.6),))

    assert "Warning: GPU" not in promised(planned("limit 8.6GiB", machine, asks(1, 6.4)))


def test_two_caps_of_60_percent_pass_the_total_also_when_one_has_grown() -> None:
    grown = Snapshot(time=0.0, gpus=(gpu(used=4),), processes=(holds(1, 4),))

    for machine in (snapshot(gpu()), grown):
        said = promised(planned("limit 60% --grow", machine, asks(1, 9.6)))
        assert "20.2 GiB of its 16 GiB are promised: 10.1 GiB to a.ipynb and 10.1 GiB to this." in said
        assert "held besides" not in said


def test_memory_of_others_counts_as_what_is_held_and_growth_is_said_to_promise_nothing() -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=5),), processes=(holds(4, 3), holds(2, 2)))

    said = promised(planned("limit 40%", machine, asks(1, 4), asks(2)))

    assert "16.4 GiB of its 16 GiB are promised: 4.5 GiB to a.ipynb and 6.9 GiB to this" in said
    assert "; 5 GiB are held besides." in said
    assert "Without a limit, and counted as what it holds: b.ipynb." in said


def test_what_is_taken_is_refused_as_before_and_nothing_is_said_of_promises() -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=14),), processes=(holds(1, 7), holds(2, 7)))

    with pytest.raises(Refused, match=r"40% is 6.4 GiB.*2 GiB of 16 GiB are free"):
        planned("limit 40%", machine, asks(1, 6.4), asks(2, 6.4))


def test_gpus_of_which_the_same_is_to_be_said_are_named_together() -> None:
    machine = snapshot(gpu(0), gpu(1), gpu(2))
    claims = [asks(1, 9.6), asks(1, 9.6, on="GPU-1")]

    assert "GPU 0, 1: with this" in promised(planned("split 5GiB 5GiB", machine, *claims))


def test_names_are_asked_for_only_where_one_is_said() -> None:
    def fail() -> dict[int, str]:
        raise AssertionError("nobody is named")

    machine = snapshot(gpu())
    process = kernel(gpu(), promises=promises(machine, [asks(1, 6.4)]))

    assert decide(parse("limit 40%"), machine, process, fail).devices


def test_what_is_promised_and_not_taken_stands_in_the_status_and_a_contexts_estimate_does_not() -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=4.25), gpu(1)), processes=(holds(1, 4.25),))
    found = promises(machine, [asks(1, 4), asks(2, 6.4), asks(3)])

    assert [*map(str, standing(machine.gpus, found, lambda: NAMES))] == [
        "Memory of GPU 0 is promised and not taken yet: 6.9 GiB to b.ipynb."
    ]
