"""`IsolatedExecutor` over the simulated machine, with real TensorFlow in its calls; the driver's account judges."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest

import tfgpu_magic
from tests.isolate.on_machine import Seen, hold, meet, sees
from tests.isolate.rig import belongings
from tests.processes import PATIENCE, QUIET
from tests.sizes import CONTEXT, GIB, MIB
from tests.waiting import until
from tfgpu_magic import IsolatedExecutor, Refused, isolated
from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.simgpu import Machine

T = TypeVar("T")


@dataclass(frozen=True)
class Resident:
    """A process, and the machine that it is on."""

    machine: Machine
    process: ProcessPoolExecutor

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call a module's function there, and return what it returns."""
        return self.process.submit(function, *args).result(PATIENCE)


@pytest.fixture(scope="module")
def four_gpus() -> Iterator[Resident]:
    """A process on a machine of four GPUs of 8 GiB, whose fork server stays warm."""
    with Machine.create("4x8GiB") as machine, ProcessPoolExecutor(1, get_context("spawn")) as process:
        with mock.patch.dict(os.environ, machine.environ({**os.environ, **QUIET})):
            process.submit(abs, 1).result(PATIENCE)  # which starts it
        yield Resident(machine, process)


@pytest.fixture
def resident(four_gpus: Resident) -> Iterator[Resident]:
    """The resident process, and the promise that every byte comes back."""
    yield four_gpus
    assert four_gpus.machine.held() == 0


def at_once(count: int | None, options: dict[str, Any], settings: str = "") -> list[Seen]:
    """Have one executor make calls that hold their GPUs at the same time; by default as many as it runs at once."""
    if settings:
        tfgpu_magic.apply(settings)
    try:
        with tempfile.TemporaryDirectory() as folder, IsolatedExecutor(**options) as executor:
            calls = count or executor._most
            return list(executor.map(hold, [folder] * calls, [calls] * calls))
    finally:
        if settings:
            tfgpu_magic.apply("default")


@pytest.mark.smoke
def test_a_limit_is_in_force_on_one_gpu(resident: Resident) -> None:
    (seen,) = resident.run(at_once, 1, {"policy": "limit 1GiB"})

    assert sorted(seen.mine) == [0, 0, 0, GIB + CONTEXT]


def test_four_workers_at_a_quarter_share_one_gpu(resident: Resident) -> None:
    seen = resident.run(at_once, None, {"policy": "visible 2; limit 25%"})

    assert len({one.pid for one in seen}) == 4  # as many as have room, and all of them at once
    assert [one.gpus for one in seen] == [[2]] * 4
    assert max(one.mine[2] for one in seen) <= 2 * GIB
    assert max(one.all[2] for one in seen) == sum(one.mine[2] for one in seen) <= 8 * GIB


def one_after_the_other_holds(calls: int, options: dict[str, Any]) -> list[Seen]:
    """Make calls that run at the same time, each of which begins when those before it hold their memory."""
    futures: list[Future[Seen]] = []
    with tempfile.TemporaryDirectory() as folder, IsolatedExecutor(calls, **options) as executor:
        for number in range(1, calls + 1):
            futures.append(executor.submit(hold, folder, calls))
            meet(folder, "hold", number, come=False)
        return [future.result() for future in futures]


@pytest.mark.parametrize("trouble", ["host_pids", "hide_memory"])
def test_so_they_do_in_a_container(resident: Resident, trouble: str) -> None:
    getattr(resident.machine, trouble)()
    try:
        seen = resident.run(one_after_the_other_holds, 4, {"policy": "visible 2; limit 25%"})
    finally:
        resident.machine.clear_faults()

    assert len({one.pid for one in seen}) == 4
    assert [one.gpus for one in seen] == [[2]] * 4


def calls_of_threads(calls: int) -> list[Seen]:
    limited = isolated(policy="limit 1GiB")(hold)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(calls) as threads:
        return list(threads.map(limited, [folder] * calls, [calls] * calls))


def test_calls_at_the_same_time_get_different_gpus(resident: Resident) -> None:
    workers = resident.run(at_once, 3, {"max_workers": 3})
    threads = resident.run(calls_of_threads, 3)
    pairs = resident.run(at_once, None, {"gpus": 2, "policy": "growth"})  # as many as there are GPUs for

    assert [len(one.gpus) for one in (*workers, *threads, *pairs)] == [1, 1, 1, 1, 1, 1, 2, 2]
    assert len({one.gpus[0] for one in workers}) == len({one.gpus[0] for one in threads}) == 3
    assert sorted(itertools.chain.from_iterable(one.gpus for one in pairs)) == [0, 1, 2, 3]


def test_what_holds_in_this_process_holds_in_its_calls(resident: Resident) -> None:
    seen = resident.run(at_once, 2, {"max_workers": 2}, "visible 1,3; limit 512MiB")

    assert sorted(one.gpus[0] for one in seen) == [1, 3]
    assert {sum(one.mine) for one in seen} == {512 * MIB + CONTEXT}


def calls_within_a_call() -> list[Seen]:
    with IsolatedExecutor(1, policy="visible 1") as executor:
        return executor.submit(at_once, 2, {"max_workers": 2, "policy": "limit 25%"}).result()


def test_calls_that_a_call_makes_have_room_on_the_gpu_that_is_its_own(resident: Resident) -> None:
    assert [one.gpus for one in resident.run(calls_within_a_call)] == [[1], [1]]


def one_after_the_other(executors: int, calls: int, options: dict[str, Any]) -> list[Seen]:
    """Make calls of several executors, each of which would run all of its calls at once."""
    pools = [IsolatedExecutor(calls, **options) for _ in range(executors)]
    seen = [pool.submit(hold, seconds=0.1) for _ in range(calls) for pool in pools]
    return [future.result() for future in seen]


def test_a_gpu_that_another_executor_has_is_waited_for(resident: Resident) -> None:
    seen = resident.run(one_after_the_other, 2, 2, {"policy": "visible 1"})

    seen.sort(key=lambda one: one.began)
    assert [one.gpus for one in seen] == [[1]] * 4
    assert all(before.ended <= after.began for before, after in itertools.pairwise(seen))


def crowd(calls: int, options: dict[str, Any]) -> int:
    """Make calls at once for GPUs that few of them fit on; return how often the GPUs are looked at for that."""
    machine = Machine.current()
    assert machine is not None
    with machine, IsolatedExecutor(calls, **options) as executor:
        before = machine.calls().get("nvmlInitWithFlags", 0)
        assert len(list(executor.map(abs, range(calls)))) == calls
        return machine.calls()["nvmlInitWithFlags"] - before


def counts() -> tuple[int, int]:
    """Return how many descriptors and threads this process has, without what earlier tests have dropped."""
    gc.collect()
    opened, threads = belongings()
    return len(opened), threads


def test_a_crowd_that_waits_for_one_gpu_looks_no_more_often_than_it_calls_and_leaves_nothing(
    resident: Resident,
) -> None:
    resident.run(crowd, 1, {"policy": "visible 0"})  # the first call keeps what the next ones need, too
    opened, threads = resident.run(counts)

    assert resident.run(crowd, 24, {"policy": "visible 0"}) <= 24 + 1
    until(lambda: resident.run(counts), lambda now: now[0] <= opened and now[1] <= threads)


def refused(*options: dict[str, Any]) -> list[str]:
    """Return what executors are refused with at their construction."""
    texts = []
    for each in options:
        with pytest.raises(Refused) as caught:
            IsolatedExecutor(**each)
        texts.append(str(caught.value))
    return texts


def test_what_no_call_could_have_is_refused_at_once(resident: Resident) -> None:
    says = {
        "5 GPUs for each call cannot be had: there are 4 here.": {"gpus": 5},
        "2 GPUs for each call cannot be had: there is 1 here.": {"gpus": 2, "policy": "visible 3"},
        "There is no GPU 7 here": {"policy": "visible 7"},
        "more than the 8 GiB it has": {"policy": "limit 9GiB"},
        "with CUDA's context in it": {"policy": "limit 3%"},
    }
    texts = resident.run(refused, *says.values())

    assert [said in text for said, text in zip(says, texts, strict=True)] == [True] * 5


def refused_later(options: dict[str, Any]) -> tuple[str, int]:
    """Return what a call is refused with that finds another program in its way, and what the next call holds."""
    there = Machine.current()
    assert there is not None
    executor = IsolatedExecutor(1, **options)
    with there:
        there.add_neighbour("6GiB@0", name="a neighbour")
        with pytest.raises(Refused) as caught:
            executor.submit(hold).result()
    return str(caught.value), sum(executor.submit(hold).result().mine)


def test_a_call_that_another_program_leaves_no_room_for_is_refused_by_name(resident: Resident) -> None:
    text, held = resident.run(refused_later, {"policy": "visible 0; limit 4GiB"})

    assert "GPU 0: the limit is 4 GiB" in text
    assert "     6 GiB  " in text
    assert held == 4 * GIB + CONTEXT  # the executor goes on


def seen_by(*options: dict[str, Any]) -> list[tuple[int, str | None]]:
    """Return what a call sees of an executor of each kind."""
    seen = []
    for each in options:
        with IsolatedExecutor(**each) as executor:
            seen.append(executor.submit(sees).result())
    return seen


def test_with_no_gpus_a_call_sees_none_and_looks_at_none(resident: Resident) -> None:
    before = resident.machine.calls()

    assert resident.run(seen_by, {"gpus": 0, "policy": "visible 1; limit 1GiB"}) == [(0, "-1")]
    assert resident.machine.calls() == before


def test_without_a_driver_calls_run_on_the_cpu(resident: Resident) -> None:
    resident.machine.remove_driver()
    try:
        assert resident.run(seen_by, {}, {"policy": "limit 1GiB"}) == [(0, None)] * 2
        (text,) = resident.run(refused, {"gpus": 1})
    finally:
        resident.machine.remove_driver(False)

    assert text.startswith("Not started. 1 GPU for each call cannot be had.")


def test_a_driver_that_is_slow_is_waited_for_and_not_taken_for_none(resident: Resident) -> None:
    resident.machine.hang("nvmlInit", 2.5)
    try:
        (seen,) = resident.run(at_once, 1, {"max_workers": 1})
    finally:
        resident.machine.clear_faults()

    assert len(seen.gpus) == 1  # and not all four


def ended_while_it_waits_for_a_gpu() -> str:
    """End an executor whose call waits for the GPU that another's call has, and goes on to have; return its error."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as end:
        first = IsolatedExecutor(1, policy="visible 0")
        second = IsolatedExecutor(1, policy="visible 0")
        has = first.submit(hold, folder, 2)
        end.callback(has.result)
        for what in ("hold", "looked"):
            end.callback(Path(folder, f"{what}-other").touch)
        until(lambda: any(Path(folder).iterdir()), every=0.01)
        waits = second.submit(hold)
        until(lambda: [claim for claim in LEDGER.read().claims.values() if claim.requested])
        second.kill_workers()
        kind = type(waits.exception()).__name__
        assert not has.done()
        return kind


def test_ending_the_workers_ends_one_that_waits_for_a_gpu(resident: Resident) -> None:
    assert resident.run(ended_while_it_waits_for_a_gpu) == "WorkerDied"
