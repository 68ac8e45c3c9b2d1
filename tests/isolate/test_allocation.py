"""Which GPUs a call gets, as a table: what is free, what other calls of ours may take, and what is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.claims.allocation import ProcessMemory, capacity, capped_to_free, choose, resolve
from tfgpu_magic.claims.claim import Claim
from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.isolate.leasing import candidates
from tfgpu_magic.policy.fit import Device
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.policy import NOTHING
from tfgpu_magic.policy.requests.limit import Limit

CONTEXT = 256 * MIB
"""What is kept for CUDA's context on a GPU of 8 GiB."""

WHOLE = None


def gpu(index: int = 0, free: float | None = 8, total: float | None = 8) -> Gpu:
    def size(gib: float | None) -> int | None:
        return None if gib is None else int(gib * GIB)

    return Gpu(index=index, uuid=f"GPU-{index}", name="A GPU", total=size(total), free=size(free))


def device(index: int = 0, free: float | None = 8, limit: float = 0, total: float | None = 8) -> Device:
    """Return a GPU of which so much is asked, in GiB; 0 is no limit."""
    limits = (int(limit * GIB),) if limit else ()
    return Device(gpu=gpu(index, free, total), limits=limits, words=Limit(limits[0]) if limits else None)


def claim(index: int, gib: float | None = WHOLE, pid: int | None = None) -> Claim:
    had = {f"GPU-{index}": None if gib is None else int(gib * GIB)}
    return Claim(number=0, slot=0, seen=0.0, had=had, pid=pid)


def holds(index: int, pid: int, gib: float | None) -> Process:
    return Process(gpu=str(index), pid=pid, kind="C", held=None if gib is None else int(gib * GIB))


WAITS = None
REFUSED = "refused"


@pytest.mark.parametrize(
    ("devices", "processes", "claims", "count", "gets"),
    [
        # Without a limit: the emptiest that none of ours has.
        ([device(0, 5), device(1, 7), device(2, 6)], [], [], 1, [1]),
        ([device(0), device(1), device(2)], [], [], 1, [0]),
        ([device(0, 5), device(1, 7), device(2, 6)], [], [claim(1)], 1, [2]),
        ([device(0, 5), device(1, 7), device(2, 6)], [], [claim(1)], 2, [2, 0]),
        ([device(0), device(1)], [], [claim(0), claim(1)], 1, WAITS),
        ([device(0), device(1)], [], [claim(0)], 2, WAITS),
        ([device(0)], [], [claim(0, 1)], 1, WAITS),  # one with a limit is there
        # What others have filled is no GPU to wait for; what only ours have filled is.
        ([device(0, 0.1), device(1, 7)], [], [], 1, [1]),
        ([device(0, 0.1), device(1, 0.1)], [], [], 1, REFUSED),
        ([device(0, 0.1), device(1, 0.1)], [], [claim(1)], 1, WAITS),
        ([device(0, 0.1), device(1, 0.1)], [], [claim(1)], 2, REFUSED),
        ([device(0), device(1)], [], [], 3, REFUSED),
        ([], [], [], 1, REFUSED),
        # With a limit: where most is left, with the context beside it.
        ([device(0, 3, limit=2), device(1, 4, limit=2)], [], [], 1, [1]),
        ([device(0, 2.25, limit=2)], [], [], 1, [0]),
        ([device(0, 2.24, limit=2)], [], [], 1, REFUSED),
        ([device(0, limit=8.1)], [], [claim(0, 1)], 1, REFUSED),  # never, so it does not wait
        # What ours have not taken yet is theirs; what they have taken is missing already.
        ([device(0, 8, limit=2)], [], [claim(0, 5.75)], 1, [0]),
        ([device(0, 8, limit=2)], [], [claim(0, 5.76)], 1, WAITS),
        ([device(0, 4, limit=2)], [holds(0, 7, 4)], [claim(0, 5.75, 7)], 1, [0]),
        ([device(0, 4, limit=2)], [holds(0, 8, 4)], [claim(0, 5.75, 7)], 1, WAITS),
        ([device(0, 4, limit=2)], [holds(1, 7, 4)], [claim(0, 5.75, 7)], 1, WAITS),
        ([device(0, 2.25, limit=2)], [holds(0, 7, 6)], [claim(0, 5.75, 7)], 1, [0]),  # more than it said
        ([device(0, 8, limit=2)], [], [claim(0, 2.25), claim(0, 2.25), claim(0, 2.25)], 1, WAITS),
        ([device(0, 8, limit=2), device(1, 5, limit=2)], [], [claim(0, 4)], 1, [1]),
        ([device(0, 8, limit=2)], [], [claim(0)], 1, WAITS),  # one without a limit has it to itself
        # Where the driver does not tell, one at a time.
        ([device(0, None, limit=2)], [], [], 1, [0]),
        ([device(0, None, limit=2)], [], [claim(0, None)], 1, WAITS),
        ([device(0, None, total=None)], [], [], 1, [0]),
        ([device(0, 4, limit=2)], [holds(0, 7, None)], [claim(0, 1, 7)], 1, [0]),
    ],
)
def test_a_call_gets(
    devices: list[Device], processes: list[Process], claims: list[Claim], count: int, gets: list[int] | str | None
) -> None:
    try:
        chosen = choose(devices, ProcessMemory(processes), claims, count)
    except Refused:
        assert gets == REFUSED
    else:
        assert (None if chosen is None else [one.gpu.index for one in chosen]) == gets


STRANGE = 2**22
"""Pids from here on are another namespace's."""


@pytest.mark.parametrize(
    ("processes", "claims", "taken"),
    [
        # By pid where that is ours; else by one that is new, and each only once.
        ([holds(0, 7, 2)], [claim(0, 2, 7)], [2]),
        ([holds(0, STRANGE, 2)], [claim(0, 2, 7)], [2]),
        ([holds(0, STRANGE, 1)], [claim(0, 2, 7)], [1]),
        ([holds(0, STRANGE, 1), holds(0, STRANGE + 1, 2)], [claim(0, 2, 7), claim(0, 1, 8)], [2, 1]),
        ([holds(0, STRANGE, 2)], [claim(0, 2, 7), claim(0, 2, 8)], [2, 0]),
        ([holds(0, STRANGE, 2)], [claim(0, 2)], [0]),  # it has no process yet
        ([holds(0, 9, 2)], [claim(0, 2, 7)], [0]),  # a process of here, which is not the call's
        ([holds(1, STRANGE, 2)], [claim(0, 2, 7)], [0]),  # on another GPU
        ([holds(0, STRANGE, 2)], [replace(claim(0, 2, 7), known=(STRANGE,))], [0]),  # it was there before
    ],
)
def test_what_calls_have_taken_is_known_by_their_pids_or_where_those_are_anothers_by_who_came(
    processes: list[Process], claims: list[Claim], taken: list[int]
) -> None:
    strangers = frozenset(row.pid for row in processes if row.pid >= STRANGE)

    assert ProcessMemory(processes, strangers).held_by(claims, gpu()) == [gib * GIB for gib in taken]


def test_what_calls_have_taken_is_known_together_where_the_driver_tells_it_of_none() -> None:
    claims = [claim(0, 2, 7), claim(0, 2, 8)]
    used = gpu(free=5.0)._replace(used=3 * GIB)
    alone = ProcessMemory([holds(0, 7, None), holds(0, 8, None)])
    beside = ProcessMemory([*alone.processes, holds(0, 9, None)])

    assert sum(alone.held_by(claims, used)) == 3 * GIB
    assert beside.held_by(claims, used) == [0, 0]


def test_a_refusal_names_who_is_in_the_way_on_each_gpu() -> None:
    devices = [device(0, 1, limit=4), device(1, 2, limit=4)]

    with pytest.raises(Refused) as refused:
        choose(devices, ProcessMemory([holds(0, 7, 7), holds(1, 8, 6)]), [], 1, lambda: {7: "train.ipynb", 8: "anna"})

    text = str(refused.value)
    assert text.startswith("Not started. The call needs 1 GPU, and none have room for it.\n")
    assert [word in text for word in ("GPU 0: the limit is 4 GiB", "GPU 1:", "train.ipynb", "anna")] == [True] * 4


@pytest.mark.parametrize(
    ("devices", "claims", "count", "calls"),
    [
        ([device(0)], [], 1, 1),
        ([device(0), device(1), device(2)], [], 1, 3),
        ([device(0), device(1), device(2)], [], 2, 1),
        ([device(0), device(1), device(2, 0.1)], [], 1, 2),
        ([device(0, 8, limit=1.75)], [], 1, 4),
        ([device(0, 7.9, limit=1.75)], [], 1, 3),
        ([device(0, 8, limit=1.75), device(1, 5, limit=1.75)], [], 1, 6),
        ([device(0, 8, limit=1.75), device(1, 8, limit=1.75)], [], 2, 4),
        ([device(0, None, limit=1.75), device(1, None)], [], 1, 2),
        ([device(0, 1, limit=1.75)], [claim(0, 7)], 1, 4),  # ours will have gone
        ([device(0, 1, limit=1.75)], [], 1, 1),  # whoever calls is told
    ],
)
def test_as_many_calls_have_room(devices: list[Device], claims: list[Claim], count: int, calls: int) -> None:
    assert capacity(devices, claims, count) == calls


def snapshot(*gpus: Gpu) -> Snapshot:
    return Snapshot(time=0.0, gpus=gpus)


def limits(words: str, *gpus: Gpu) -> list[tuple[int, tuple[int, ...]]]:
    return [(one.gpu.index, one.limits) for one in candidates(NOTHING, parse(words), snapshot(*gpus))]


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_percentage_is_of_all_that_the_process_holds() -> None:
    assert limits("limit 25%", gpu()) == [(0, (2 * GIB - CONTEXT,))]
    assert limits("limit 100%", gpu()) == [(0, (8 * GIB - CONTEXT,))]
    assert limits("limit 2%", gpu()) == [(0, (0,))]
    assert limits("limit 2GiB", gpu()) == [(0, (2 * GIB,))]


def test_what_the_driver_keeps_is_nobodys_share() -> None:
    kept = gpu(free=7.5)._replace(reserved=GIB // 2)

    assert limits("limit 25%", kept) == [(0, (int(7.5 * GIB / 4) - CONTEXT,))]
    assert capacity(candidates(NOTHING, parse("limit 25%"), snapshot(kept)), [], 1) == 4


def test_nothing_left_beside_the_context_is_refused_and_says_why() -> None:
    with pytest.raises(Refused, match=r"with CUDA's context in it is too little to work with"):
        choose(candidates(NOTHING, parse("limit 3%"), snapshot(gpu())), ProcessMemory(), [], 1)


def test_each_gpu_has_its_own_words() -> None:
    assert limits("limit 0=1GiB 1=50%", gpu(0), gpu(1), gpu(2)) == [
        (0, (GIB,)), (1, (4 * GIB - CONTEXT,)), (2, ()),
    ]  # fmt: skip
    assert limits("visible 2,0; limit 1GiB", gpu(0), gpu(1), gpu(2)) == [(2, (GIB,)), (0, (GIB,))]


def test_what_is_hidden_from_this_process_is_hidden_from_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")

    assert limits("growth", gpu(0), gpu(1), gpu(2)) == [(2, ()), (1, ())]


def test_a_gpu_that_tensorflow_leaves_out_is_not_leased() -> None:
    small = gpu(1)._replace(multiprocessors=4)

    assert limits("growth", gpu(0)._replace(multiprocessors=80), small) == [(0, ())]


def test_each_mig_instance_is_leased_by_itself() -> None:
    parent = gpu(0)._replace(mig=True)
    instances = [gpu(0, 4, 4)._replace(instance=number, uuid=f"MIG-{number}") for number in range(2)]
    found = candidates(NOTHING, parse("growth"), snapshot(parent, *instances))

    assert [one.gpu.uuid for one in found] == ["MIG-0", "MIG-1"]
    assert str(resolve(parse("growth"), found[1:])) == "visible MIG-1; growth"


@pytest.mark.parametrize(
    ("words", "gpus", "settled"),
    [
        ("limit 25%", [3], "visible 3; limit 1792MiB"),
        ("limit 1GiB --grow", [1], "visible 1; limit 1GiB --grow"),
        ("limit 25%", [0, 2], "visible 0,2; limit 0=1792MiB; limit 2=1792MiB"),
        ("growth", [0], "visible 0; growth"),
        ("growth", [2, 1], "visible 2,1; growth"),
        ("growth off", [2], "visible 2; growth off"),
        ("visible 0,1", [1], "visible 1"),
        ("split 2", [1], "visible 1; split 2"),
        ("split 1GiB 1GiB", [1], "visible 1; split 1GiB 1GiB"),
        ("split 4 --cpu; limit 1GiB", [0], "split 4 --cpu; visible 0; limit 1GiB"),
        ("limit 0=1GiB 1=2GiB", [1, 0], "visible 1,0; limit 1=2GiB; limit 0=1GiB"),
        ("limit 0=1GiB", [0, 1], "visible 0,1; limit 0=1GiB"),
    ],
)
def test_the_policy_of_the_process_names_its_gpus_and_bytes(words: str, gpus: list[int], settled: str) -> None:
    devices = {one.gpu.index: one for one in candidates(NOTHING, parse(words), snapshot(*map(gpu, range(4))))}

    assert str(resolve(parse(words), [devices[index] for index in gpus])) == settled


@pytest.mark.parametrize(
    ("words", "limits"),
    [("limit 60% --grow", [768 * MIB]), ("limit 60%", [4659 * MIB]), ("limit 256MiB --grow", [256 * MIB])],
)
def test_a_limit_that_is_grown_into_can_be_lowered_to_what_is_free(words: str, limits: list[int]) -> None:
    (device,) = candidates(NOTHING, parse(words), snapshot(gpu(free=1)))

    assert list(capped_to_free(device).limits) == limits
