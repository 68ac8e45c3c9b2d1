"""`IsolatedExecutor` over the simulated machine, with real TensorFlow in its calls; the driver's account judges."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.isolate import executors
from tests.isolate.on_machine import sees
from tests.isolate.resident import Resident
from tests.sizes import CONTEXT, GIB, MIB
from tests.slack import SLACK
from tfgpu_magic import IsolatedExecutor, PolicyError


@pytest.mark.smoke
def test_a_limit_is_in_force_on_one_gpu(resident: Resident) -> None:
    (seen,) = resident.run(executors.at_once, 1, {"policy": "limit 1GiB"})

    assert sorted(seen.mine) == [0, 0, 0, GIB + CONTEXT]


def test_four_workers_at_a_quarter_share_one_gpu(resident: Resident) -> None:
    seen = resident.run(executors.at_once, None, {"policy": "visible 2; limit 25%"})

    assert len({one.pid for one in seen}) == 4  # as many as have room, and all of them at once
    assert [one.gpus for one in seen] == [[2]] * 4
    assert max(one.mine[2] for one in seen) <= 2 * GIB
    assert max(one.all[2] for one in seen) == sum(one.mine[2] for one in seen) <= 8 * GIB


def test_three_workers_on_four_gpus_get_three_different_ones(resident: Resident) -> None:
    seen = resident.run(executors.at_once, 3, {"max_workers": 3})

    assert len({one.gpus[0] for one in seen}) == 3
    assert [len(one.gpus) for one in seen] == [1, 1, 1]


def test_without_a_number_as_many_run_as_there_are_gpus_for(resident: Resident) -> None:
    pairs = resident.run(executors.at_once, None, {"gpus": 2, "policy": "growth"})

    assert sorted(itertools.chain.from_iterable(one.gpus for one in pairs)) == [0, 1, 2, 3]
    assert [len(one.gpus) for one in pairs] == [2, 2]


def test_what_holds_in_this_process_holds_in_its_calls(resident: Resident) -> None:
    seen = resident.run(executors.at_once, 2, {"max_workers": 2}, "visible 1,3; limit 512MiB")

    assert sorted(one.gpus[0] for one in seen) == [1, 3]
    assert {sum(one.mine) for one in seen} == {512 * MIB + CONTEXT}


def test_a_gpu_that_another_executor_has_is_waited_for(resident: Resident) -> None:
    seen = resident.run(executors.one_after_the_other, 2, 2, {"policy": "visible 1"})

    seen.sort(key=lambda one: one.began)
    assert [one.gpus for one in seen] == [[1]] * 4
    assert all(before.ended <= after.began for before, after in itertools.pairwise(seen))


def test_a_crowd_that_waits_for_one_gpu_looks_no_more_often_than_it_calls(resident: Resident) -> None:
    assert resident.run(executors.crowd, 24, {"policy": "visible 0"}) <= 24 + 1


def test_a_call_that_another_program_leaves_no_room_for_is_refused_by_name(resident: Resident) -> None:
    options = {"policy": "visible 0; limit 4GiB"}
    kind, text, held = resident.run(executors.refused_later, options, str(resident.machine.path), "6GiB@0")

    assert kind == "Refused"
    assert "GPU 0: the limit is 4 GiB" in text
    assert "     6 GiB  " in text
    assert held == 4 * GIB + CONTEXT  # the executor goes on


def test_with_no_gpus_a_call_sees_none_and_looks_at_none(resident: Resident) -> None:
    before = resident.machine.calls()

    assert resident.run(executors.values, sees, [()], {"gpus": 0, "policy": "visible 1; limit 1GiB"}) == [(0, "-1")]
    assert resident.machine.calls() == before


def test_without_a_driver_calls_run_on_the_cpu(resident: Resident) -> None:
    workers, seen, limited, (kind, text) = resident.run(executors.without_a_driver, str(resident.machine.path))

    assert workers >= 1
    assert seen == (0, None)
    assert limited == "(0, None)"
    assert kind == "Refused"
    assert text.startswith("Not started. 1 GPU for each call cannot be had.")


def test_a_driver_that_is_slow_is_waited_for_and_not_taken_for_none(resident: Resident) -> None:
    resident.machine.hang("nvmlInit", 2.5)
    try:
        (seen,) = resident.run(executors.at_once, 1, {"max_workers": 1})
    finally:
        resident.machine.clear_faults()

    assert len(seen.gpus) == 1  # and not all four


def test_twenty_in_a_row_leave_nothing_behind(resident: Resident) -> None:
    before, after = resident.run(executors.left_behind, 20)

    assert all(now <= then for now, then in zip(after, before, strict=True))
    assert resident.machine.held() == 0
    assert resident.run(executors.stage) == "not imported"  # and TensorFlow never came to the one who called


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gpus": 5}, "5 GPUs for each call cannot be had: there are 4 here."),
        ({"gpus": 2, "policy": "visible 3"}, "2 GPUs for each call cannot be had: there is 1 here."),
        ({"policy": "visible 7"}, "There is no GPU 7 here"),
        ({"policy": "limit 9GiB"}, "more than the 8 GiB it has"),
        ({"policy": "limit 3%"}, "CUDA's context included"),
    ],
)
def test_what_no_call_could_have_is_refused_at_once(resident: Resident, options: dict[str, Any], says: str) -> None:
    kind, text = resident.run(executors.refused, options)

    assert kind == "Refused"
    assert says in text


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"max_workers": 0}, ValueError, "max_workers must be greater than 0"),
        ({"gpus": -1}, PolicyError, "gpus=-1 is no number of GPUs"),
        ({"gpus": True}, PolicyError, "gpus=True is no number of GPUs"),
        ({"timeout": -1}, PolicyError, "-1 cannot be waited for"),
        ({"timeout": "10"}, PolicyError, "10 of what"),
        ({"timeout": "10 minutes"}, PolicyError, "Write one as 90s, 10m"),
        ({"policy": "limt 1GiB"}, PolicyError, "Did you mean 'limit'"),
        ({"policy": "pick 2"}, PolicyError, "as many as gpus= says"),
        ({"initializer": 3}, TypeError, "initializer must be a callable"),
    ],
)
def test_what_makes_no_sense_is_an_error_at_construction(
    options: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        IsolatedExecutor(**options)


def test_what_cannot_be_sent_is_named_by_the_future(resident: Resident) -> None:
    argument, keyword, function, result = resident.run(executors.unpicklable)

    assert argument[0] == keyword[0] == function[0] == result[0] == "Unpicklable"
    assert argument[1].startswith("argument 1 of repr cannot be sent to another process: a _thread.lock cannot")
    assert keyword[1].startswith("argument 'options' of values cannot be sent")
    assert "in argument 'options' of values['here'][0]" in keyword[1]
    assert "<lambda> cannot be sent" in function[1]
    assert "the result of _a_lock cannot be sent" in result[1]


@pytest.mark.parametrize("how", ["kill_workers", "terminate_workers"])
def test_ending_the_workers_leaves_nothing_running(resident: Resident, how: str) -> None:
    stand, took, late, alive = resident.run(executors.ended, how, 60.0)

    assert stand == ["WorkerDied", "WorkerDied", "cancelled", "cancelled"]
    assert took < 2 * SLACK
    assert late == "cannot schedule new futures after shutdown"
    assert alive == []


def test_ending_the_workers_ends_one_that_waits_for_a_gpu(resident: Resident) -> None:
    kind, took = resident.run(executors.ended_while_it_waits_for_a_gpu)

    assert kind == "WorkerDied"
    assert took < 2 * SLACK


def test_a_shutdown_cancels_what_waits_and_not_what_runs(resident: Resident) -> None:
    assert resident.run(executors.shut_down) == (["None", "cancelled", "cancelled"], False)


def test_an_initializer_runs_in_each_process(resident: Resident) -> None:
    found, failed = resident.run(executors.initialised)

    assert found == ["licence"] * 3
    assert failed == ("TfGpuError", "no licence")
