"""What other processes may yet take of a GPU: how promises add up, what is said of them, and how a GPU is divided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.figures import tensorflow
from tests.policy.test_plan import kernel, snapshot
from tests.sizes import GIB, MIB
from tfgpu_magic.engine.other_processes import picks
from tfgpu_magic.errors import Refused
from tfgpu_magic.model.report import GpuUse, Report
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.policy.ceiling import read
from tfgpu_magic.policy.fallback import nearest
from tfgpu_magic.policy.memory import context_bytes, whole
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.plan import Plan, make
from tfgpu_magic.policy.process_state import Stage
from tfgpu_magic.policy.promises import EVERY_GPU, Promise, gather, standing

CONTEXT = 512 * MIB
"""What is kept for CUDA's context on a GPU of 16 GiB."""

NAMES = {1: "a.ipynb", 2: "b.ipynb", 3: "train.py", 4: "maria"}


def gpu(index: int = 0, used: float = 0.0, total: int = 16) -> Gpu:
    taken = int(used * GIB)
    return Gpu(index=index, uuid=f"GPU-{index}", name="T", total=total * GIB, used=taken, free=total * GIB - taken)


def holds(pid: int, size: float, index: int = 0) -> Process:
    return Process(gpu=str(index), pid=pid, kind="C", held=int(size * GIB))


def asks(pid: int, limit: float | None = None, *, fair: bool = False, at: float = 0.0, on: str = "GPU-0") -> Report:
    """Return the report of a process with a limit in GiB, or with growth."""
    size = None if limit is None else int(limit * GIB)
    return Report(pid=pid, summary="", uses=(GpuUse(gpu=on, limit=size, fair=fair, asked=at),))


def planned(
    words: str, machine: Snapshot, *reports: Report, stage: Stage = Stage.ABSENT, most: str | None = None
) -> Plan:
    ceiling = None if most is None else read(most)
    process = kernel(*machine.gpus, promises=gather(machine, reports), stage=stage, ceiling=ceiling)
    return make(parse(words), machine, process, lambda: NAMES)


def promised(plan: Plan) -> str:
    """Return what a plan says of promises."""
    return "\n".join(note for note in plan.notes if "promised" in note or "each of" in note or "nobody else" in note)


def test_a_promise_is_the_larger_of_what_is_held_and_what_may_be_taken() -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=9),), processes=(holds(1, 2), holds(2, 7)))

    one, two = gather(machine, [asks(1, 4, at=2.0), asks(2, 4, at=1.0)])[::-1]

    assert (one.total, one.owed) == (4 * GIB + CONTEXT, 2 * GIB + CONTEXT)
    assert (two.total, two.owed) == (7 * GIB, 0)  # libraries took more than the limit counts


def test_what_was_taken_is_not_promised_again() -> None:
    """A context is smaller than it was estimated, and all else of the limit is there."""
    machine = Snapshot(time=0.0, gpus=(gpu(used=6.6),), processes=(holds(1, 6.6),))
    reports = [asks(1, 6.4)]

    assert [(one.total, one.owed) for one in gather(machine, reports)] == [(int(6.6 * GIB), 0)]
    assert "Warning: GPU" not in promised(planned("limit 8.6GiB", machine, *reports))


@pytest.mark.parametrize(("used", "ways"), [(6.6, ("limit 7.1GiB",)), (15.2, ())])
def test_what_is_offered_leaves_room_for_libraries_and_promises_and_is_no_other_program(
    used: float, ways: tuple[str, ...]
) -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=used),), processes=(holds(1, used),))
    with pytest.raises(Refused) as caught:
        planned("limit 12GiB", machine, asks(1, 6.4))

    assert caught.value.ways == ways
    for way in ways:
        assert "Warning" not in "".join(planned(way, machine, asks(1, 6.4)).notes)


def test_what_others_are_promised_is_not_offered() -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=2),), processes=(holds(1, 2),))
    with pytest.raises(Refused) as caught:
        planned("limit 15GiB", machine, asks(1, 8))

    assert caught.value.ways == ("limit 7GiB",)


def test_growth_without_a_limit_promises_no_more_than_it_holds() -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=3),), processes=(holds(1, 3),))

    (grows,) = gather(machine, [asks(1)])

    assert (grows.size, grows.total, grows.owed) == (None, 3 * GIB, 0)


def test_where_the_driver_names_no_pids_a_process_has_what_it_reports() -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=3),), processes=(holds(4711, 3),))
    report = Report(pid=1, summary="", uses=(GpuUse(gpu="GPU-0", limit=4 * GIB, figures=tensorflow(3 * GIB)),))

    (one,) = gather(machine, [report])

    assert one.owed == GIB + CONTEXT


def test_a_call_that_reports_of_itself_counts_once_and_one_without_a_process_counts_too() -> None:
    machine = snapshot(gpu())
    leases = [Promise(gpu="GPU-0", pid=1, size=5 * GIB, asked=1.0), Promise(gpu="GPU-0", size=3 * GIB, asked=2.0)]

    found = gather(machine, [asks(1, 4)], leases)

    assert [(one.pid, one.total) for one in found] == [(1, 5 * GIB), (None, 3 * GIB)]


def test_a_call_that_has_a_gpu_to_itself_has_all_of_it_and_one_with_a_fair_part_shares_it() -> None:
    whole = Gpu(index=0, uuid="GPU-0", total=16 * GIB, reserved=GIB, used=2 * GIB, free=13 * GIB)
    machine = Snapshot(time=0.0, gpus=(whole,), processes=(holds(1, 2),))
    leases = [Promise(gpu="GPU-0", pid=1), Promise(gpu="GPU-0", pid=2, fair=True)]

    one, two = gather(machine, [asks(1)], leases)

    assert (one.total, one.owed, one.fair) == (15 * GIB, 13 * GIB, False)
    assert (two.size, two.fair) == (None, True)


def test_a_fair_part_of_a_call_is_as_large_as_its_process_reports() -> None:
    (one,) = gather(snapshot(gpu()), [asks(1, 3)], [Promise(gpu="GPU-0", pid=1, fair=True)])

    assert (one.size, one.fair) == (3 * GIB + CONTEXT, False)


def test_a_report_that_promises_nothing_still_claims_what_was_picked() -> None:
    report = replace(asks(1, 4), promises=False)

    assert gather(snapshot(gpu()), [report]) == ()
    assert picks([report]) == {"GPU-0": 1.0}


def test_what_is_on_a_gpu_that_is_not_there_counts_nowhere() -> None:
    assert gather(snapshot(gpu()), [asks(1, 4, on="GPU-9")], [Promise(gpu="GPU-9", size=1)]) == ()


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
    reports = [asks(1, 9.6), asks(1, 9.6, on="GPU-1")]

    assert "GPU 0, 1: with this" in promised(planned("split 5GiB 5GiB", machine, *reports))


def test_names_are_asked_for_only_where_one_is_said() -> None:
    def fail() -> dict[int, str]:
        raise AssertionError("nobody is named")

    machine = snapshot(gpu())
    process = kernel(gpu(), promises=gather(machine, [asks(1, 6.4)]))

    assert make(parse("limit 40%"), machine, process, fail).devices


def part(plan: Plan) -> int:
    (device,) = plan.devices
    return sum(device.limits)


def test_four_that_ask_for_a_fair_part_get_the_same_and_each_is_told_what() -> None:
    reports = [asks(1, fair=True), asks(2, fair=True), asks(3, fair=True)]

    plan = planned("limit fair", snapshot(gpu()), *reports)

    assert part(plan) == (16 * GIB - 4 * CONTEXT - 1800 * MIB) // 4 // MIB * MIB
    assert "GPU 0: 3.1 GiB for each of 4: this, a.ipynb, b.ipynb and train.py." in promised(plan)
    assert "Until TensorFlow is imported here, it is divided anew as others ask or end." in promised(plan)


def test_whoever_takes_a_part_leaves_the_others_as_much_and_the_fifth_gets_what_is_left() -> None:
    first = part(planned("limit fair", snapshot(gpu()), *(asks(pid, fair=True) for pid in (2, 3, 4))))
    then = [asks(1, first / GIB), asks(3, fair=True), asks(4, fair=True)]

    assert part(planned("limit fair", snapshot(gpu()), *then)) == first

    taken = [asks(pid, first / GIB) for pid in (1, 2, 3)]
    fifth = planned("limit fair", snapshot(gpu()), *taken, asks(4, fair=True))
    assert part(fifth) < first // 2
    assert "Promised already: 3.6 GiB to a.ipynb, 3.6 GiB to b.ipynb and 3.6 GiB to train.py." in promised(fifth)


def test_a_part_that_nobody_shares_is_all_that_is_left() -> None:
    said = promised(planned("limit fair --grow", snapshot(gpu()), asks(1, 4), asks(2)))

    assert "nobody else has a fair part of it now, so this gets 9.2 GiB. Promised already: 4.5 GiB to a.ipynb." in said


SHARING = [asks(1, fair=True), asks(2, fair=True), asks(3, fair=True)]


@pytest.mark.parametrize("words", ["limit fair", "limit fair --grow"])
def test_a_part_is_held_to_the_ceiling_as_large_as_it_is(words: str) -> None:
    shared = planned(words, snapshot(gpu()), *SHARING, most="limit 40%")

    assert (str(shared.asked), part(shared)) == (words, part(planned(words, snapshot(gpu()), *SHARING)))
    assert part(planned(words, snapshot(gpu()), most="limit 40%")) == whole(16 * GIB * 40 // 100)


@pytest.mark.parametrize("others", [SHARING, []])
def test_so_is_one_that_is_configured(others: list[Report]) -> None:
    machine = snapshot(gpu(), gpu(1, total=4))
    process = kernel(*machine.gpus, promises=gather(machine, others), ceiling=read("limit 40%"))

    plan, _ = nearest(parse("visible 0; limit fair"), machine, process)

    assert str(plan.asked) == "visible 0; limit fair"


def test_a_process_that_knows_no_gpu_yet_has_a_part_of_each() -> None:
    plan = planned("limit fair", snapshot(gpu(0), gpu(1)), asks(1, fair=True, on=EVERY_GPU))

    assert [line for line in promised(plan).splitlines() if line.startswith("GPU 0, 1: ")]
    assert plan.devices[0].limits == plan.devices[1].limits


def test_where_all_is_promised_a_fair_part_is_refused_and_no_smaller_limit_is_offered() -> None:
    with pytest.raises(Refused, match="a fair part, 0 MiB, of the 16 GiB that are free is too little") as refused:
        planned("limit fair", snapshot(gpu()), asks(1, 7.5), asks(2, 7.5))

    assert "limit 32MiB" not in str(refused.value)
    assert "Memory of GPU 0 is promised: 8 GiB to a.ipynb and 8 GiB to b.ipynb." in str(refused.value)


def test_a_part_is_settled_in_bytes_only_when_tensorflow_is_there() -> None:
    waits = planned("limit fair", snapshot(gpu()), asks(1, fair=True))
    there = planned("limit fair", snapshot(gpu()), asks(1, fair=True), stage=Stage.IMPORTED)

    assert (str(waits.asked), str(waits.settled), waits.divides) == ("limit fair", "limit fair", True)
    assert (str(there.asked), str(there.settled)) == ("limit fair", f"limit {part(there) // MIB}MiB")
    assert not there.divides


def test_parts_of_unequal_gpus_are_settled_gpu_by_gpu() -> None:
    machine = snapshot(gpu(0), gpu(1, total=8))

    plan = planned("limit fair --grow", machine, stage=Stage.IMPORTED)

    assert [str(request).partition("=")[0] for request in plan.settled] == ["limit 0", "limit 1"]
    assert all(str(request).endswith(" --grow") for request in plan.settled)


def test_what_is_promised_and_not_taken_stands_in_the_status_and_a_contexts_estimate_does_not() -> None:
    machine = Snapshot(time=0.0, gpus=(gpu(used=4.25), gpu(1)), processes=(holds(1, 4.25),))
    found = gather(machine, [asks(1, 4), asks(2, 6.4), asks(3)])

    assert standing(machine.gpus, found, lambda: NAMES) == [
        "Memory of GPU 0 is promised and not taken yet: 6.9 GiB to b.ipynb."
    ]


asked = st.tuples(st.booleans(), st.floats(0, 12), st.floats(0, 12))


@given(st.lists(asked, max_size=6), st.floats(0, 15), st.permutations(range(6)), st.integers(1, 6))
def test_fair_parts_never_exceed_what_is_there_in_whatever_order_they_are_taken(
    others: list[tuple[bool, float, float]], used: float, order: list[int], sharing: int
) -> None:
    """Some have limits, and have taken a part of them; what is left is divided, and fixed one part after the other."""
    held = {pid: min(limit, taken) for pid, (has, limit, taken) in enumerate(others, 100) if has}
    machine = Snapshot(
        time=0.0,
        gpus=(gpu(used=min(15.9, used + sum(held.values()))),),
        processes=tuple(holds(pid, size) for pid, size in held.items()),
    )
    fixed = [asks(pid, limit) for pid, (_, limit, _) in enumerate(others, 100)]
    waiting = [pid + 1 for pid in order if pid < sharing]
    before = sum(one.owed for one in gather(machine, fixed))
    parts: list[int] = []
    while waiting:
        pid = waiting.pop()
        try:
            plan = planned("limit fair", machine, *fixed, *(asks(one, fair=True) for one in waiting))
        except Refused:
            return  # too little is left to work with: nothing more is promised
        parts.append(part(plan))
        fixed.append(asks(pid, parts[-1] / GIB))

        free = machine.gpus[0].free or 0
        assert before + sum(parts) + len(parts) * context_bytes(16 * GIB) <= free


@given(st.integers(1, 8), st.floats(0, 6))
def test_fair_parts_are_equal_whoever_begins(sharing: int, used: float) -> None:
    machine = snapshot(gpu(used=used))
    parts = {
        part(planned("limit fair", machine, *(asks(pid + 1, fair=True) for pid in range(sharing) if pid != one)))
        for one in range(sharing)
    }

    assert len(parts) == 1
