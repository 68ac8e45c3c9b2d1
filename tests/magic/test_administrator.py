"""An administrator's policy never falls to nothing: real TensorFlow under it, judged by the driver's account."""

from __future__ import annotations

import contextlib
import time
from unittest import mock

import pytest

from tests.magic.shell import cells
from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE, MIB
from tests.tf.on_machine import held, touch_every_gpu
from tfgpu_magic.errors import Refused
from tfgpu_magic.simgpu import Machine

LIMIT = int(0.4 * 8 * 1024) * MIB + CONTEXT


@pytest.mark.parametrize(
    ("policy", "size", "told"),
    [
        (
            "growth",
            LITTLE,
            "cannot be had in full. `visible 0,1,2,3,4,5,6; growth` is in force instead",
        ),
        ("limit 40%", range(LIMIT, LIMIT + 1), "`visible 0,1,2,3,4,5,6; limit 40%` is in force instead"),
        ("limit 40% --grow", LITTLE, "`visible 0,1,2,3,4,5,6; limit 40% --grow` is in force instead"),
        ("limti 40%", LITTLE, "Did you mean 'limit'?"),
    ],
)
def test_on_eight_gpus_of_which_one_is_full_the_others_are_used_as_the_policy_says(
    policy: str, size: range, told: str
) -> None:
    with Machine.create("8x8GiB") as machine:
        machine.add_neighbour("7.8GiB@7")
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": policy}, imported=False)

    assert told in said
    assert "GPU 7: " in said
    assert all(one in size for one in sizes[:7])
    assert sizes[7] == 0


@pytest.mark.parametrize("policy", ["limit 40%", "growth"])
def test_on_eight_gpus_of_which_one_is_lost_the_others_are_used_as_the_policy_says(policy: str) -> None:
    with Machine.create("8x8GiB") as machine:
        machine.lose(3)
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": policy}, imported=False)

    assert "NOT in force" not in said
    assert sizes[3] == 0
    assert all(size == LIMIT if policy == "limit 40%" else size in LITTLE for size in sizes[:3] + sizes[4:])


def test_what_holds_is_decided_when_tensorflow_is_imported_an_hour_after_the_kernels_start() -> None:
    with Machine.create("2x8GiB") as machine:
        said, sizes = run(machine, _use_an_hour_later, env={"TFGPU_POLICY": "limit 40%"}, imported=False)

    assert "`visible 0; limit 40%` is in force instead" in said
    assert "GPU 1: " in said
    assert sizes == [LIMIT, 0]


def test_a_policy_that_can_be_had_is_not_spoken_of() -> None:
    with Machine.create("8x8GiB") as machine:
        machine.add_neighbour("7.8GiB@7")
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": "pick; growth"}, imported=False)

    assert said == ""
    assert sorted(sizes)[:7] == [0] * 7
    assert max(sizes) in LITTLE
    assert sizes[7] == 0


@pytest.mark.parametrize(("policy", "neighbour"), [("limit 60%", "5GiB@1"), ("limit 12GiB", "1GiB@1")])
def test_a_limit_that_is_not_there_is_grown_into(policy: str, neighbour: str) -> None:
    with Machine.create("2x8GiB") as machine:
        machine.add_neighbour(neighbour)
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": policy}, imported=False)

    assert f"`{policy}`, from $TFGPU_POLICY, cannot be had in full" in said
    assert all(one in LITTLE for one in sizes)


@pytest.mark.smoke
def test_where_every_gpu_is_full_none_is_used() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.add_neighbour("7.8GiB@0")
        machine.add_neighbour("7.8GiB@1")
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": "limit 40%"}, imported=False)

    assert "`visible none; limit 40%` is in force instead" in said
    assert sizes == [0, 0]


def test_a_driver_that_is_slow_to_start_is_waited_for() -> None:
    with Machine.create("8x8GiB") as machine:
        machine.add_neighbour("7.8GiB@7")
        machine.hang("nvmlInit", 2.5)
        said, sizes = run(machine, _use_every_gpu, env={"TFGPU_POLICY": "limit 40%"}, imported=False)

    assert "Waiting for the NVIDIA driver" in said
    assert sizes == [LIMIT] * 7 + [0]


@pytest.mark.parametrize("words", ["limit 1GiB", "pick", "split 2"])
def test_words_wait_for_a_driver_that_is_slow_to_start(words: str) -> None:
    with Machine.create("2x8GiB") as machine:
        machine.hang("nvmlInit", 2.5)
        first, again = run(machine, _say, f"%tf_gpu {words}", f"%tf_gpu {words}")

    assert first.startswith("Waiting for the NVIDIA driver, which is slow to answer…")
    assert "Not applied" not in first + again


def test_what_does_not_fit_at_the_start_of_a_kernel_and_does_at_the_import_is_in_force() -> None:
    with Machine.create("1x8GiB") as machine:
        said, sizes = run(machine, _use_after_a_neighbour, env={"TFGPU_POLICY": "limit 40%"}, imported=False)

    assert (said, sizes) == ("", [LIMIT])


@pytest.mark.smoke
def test_words_of_the_user_outweigh_it() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.add_neighbour("7.8GiB@1")
        env = {"TFGPU_POLICY": "limit 40%"}
        _, sizes = run(machine, _use_every_gpu, "%tf_gpu limit 1GiB", env=env, imported=False)

    assert sizes == [GIB + CONTEXT, 0]


def test_what_is_asked_for_with_a_restart_is_what_can_be_had_then() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.add_neighbour("7.8GiB@1")
        asked, refusal = run(machine, _foresee_under_what_it_fell_to, env={"TFGPU_POLICY": "visible 0,1; growth"})

    assert asked == "visible 0; limit 2GiB"
    assert "Fits after a restart:" in refusal


def test_what_waits_and_cannot_be_had_in_full_refuses_no_code() -> None:
    with Machine.create("2x8GiB") as machine:
        (said,) = run(machine, _say, "%tf_gpu code limit 2GiB", env={"TFGPU_POLICY": "visible 0,1,2,3; growth"})

    assert "import tensorflow" in said


def _use_every_gpu(*lines: str) -> tuple[str, list[int]]:
    """Return what is said from loading the extension to TensorFlow's import, but for answers, and what is held."""
    from tests.magic.shell import loading

    seen = loading(*lines, "import tensorflow")
    touch_every_gpu()
    return seen[0].text + seen[-1].text, held()


def _say(*lines: str) -> list[str]:
    return [seen.text for seen in cells(*lines)]


def _foresee_under_what_it_fell_to() -> tuple[str, str]:
    from tfgpu_magic import control

    _use_every_gpu()
    with pytest.raises(Refused) as refused:
        control.foresee("limit 7.9GiB")
    return str(control.foresee("limit 2GiB").asked), str(refused.value)


def _use_an_hour_later() -> tuple[str, list[int]]:
    """Load the extension, have a neighbour come, put the clocks forward by an hour, and import TensorFlow."""
    from tests.magic.shell import loading

    machine = Machine.current()
    assert machine is not None
    loaded = loading("%tf_gpu plan")
    machine.add_neighbour("7.8GiB@1")
    clocks = {name: getattr(time, name) for name in ("time", "monotonic")}
    with contextlib.ExitStack() as later:
        for name, clock in clocks.items():
            later.enter_context(mock.patch.object(time, name, lambda clock=clock: clock() + 3600.0))
        imported = cells("import tensorflow")
    touch_every_gpu()
    return loaded[0].text + imported[0].text, held()


def _use_after_a_neighbour() -> tuple[str, list[int]]:
    from tests.magic.shell import loading

    machine = Machine.current()
    assert machine is not None
    neighbour = machine.add_neighbour("7GiB@0")
    loaded = loading()
    neighbour.stop()
    imported = cells("import tensorflow")
    touch_every_gpu()
    return loaded[0].text + imported[0].text, held()
