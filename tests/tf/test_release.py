"""Under `growth --release` the real TensorFlow's memory goes back to the driver, whose account is the judge."""

from __future__ import annotations

import pytest

from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE, MIB
from tests.tf import release_on_machine as on_machine
from tests.tf.test_calls import listed
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.simgpu import Machine

SOME = 64 * MIB
"""More than a small model in training has beside its context."""


def test_what_is_freed_stays_held_until_it_is_given_back_and_what_lives_stays() -> None:
    with Machine.create("8GiB") as machine:
        before, freed, gone, after, again = run(machine, on_machine.up_and_down)

    assert before[0] - CONTEXT in range(3 * GIB, 3 * GIB + SOME)
    assert freed == before  # TensorFlow's own figure fell, and the driver's did not
    assert gone == before[0] - after[0]
    assert after[0] - CONTEXT in range(GIB, GIB + SOME)
    assert again == before


def test_five_times_up_and_down_and_training_goes_on() -> None:
    with Machine.create("8GiB") as machine:
        rounds = run(machine, on_machine.train_five_times)

    assert len(rounds) == 5
    for up, down, lives, epochs in rounds:
        assert up - CONTEXT > 2 * GIB
        assert 0 <= down - CONTEXT - lives < 2 * MIB  # each tensor takes whole pages
        assert 0 < lives < SOME
        assert epochs == 2


def test_threads_that_compute_may_go_on_meanwhile() -> None:
    with Machine.create("8GiB") as machine:
        rounds, left, in_use = run(machine, on_machine.beside_threads)

    assert rounds >= 100
    assert 0 <= left[0] - CONTEXT - in_use < 2 * MIB
    assert in_use in range(GIB, GIB + SOME)


def test_a_forked_child_gives_back_nothing_and_takes_nothing_from_its_parent() -> None:
    with Machine.create("8GiB") as machine:
        status, before, after, gone = run(machine, on_machine.in_a_fork)

    assert (status, before) == (0, after)
    assert gone >= GIB


def test_the_users_own_variable_is_enough() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, on_machine.by_the_users_own_variable) >= GIB


def test_each_gpu_gives_back_its_own() -> None:
    with Machine.create("2x8GiB") as machine:
        before, gone, after = run(machine, on_machine.on_two_gpus)

    assert [size - CONTEXT >= want for size, want in zip(before, (GIB, 2 * GIB), strict=True)] == [True, True]
    assert [before[0] - after[0], before[1] - after[1]] == gone
    assert [size in LITTLE for size in after] == [True, True]


@pytest.mark.parametrize(
    "words", ["growth --release", "visible 1; growth --release", "growth --release; split 2 --cpu"]
)
@pytest.mark.parametrize("before", [None, listed])
def test_it_is_in_force_wherever_tensorflow_has_come_before_its_first_op(words: str, before: object) -> None:
    with Machine.create("2x8GiB") as machine:
        gone = run(machine, on_machine.give_back_after, words, before)

    assert gone >= GIB


def test_where_it_was_not_asked_for_it_is_refused_and_nothing_is_given_back() -> None:
    with Machine.create("8GiB") as machine:
        text = run(machine, on_machine.refused, "growth")

    assert "Traceback" not in text
    assert "TensorFlow gives back what it does not use where `growth --release` was said before its first" in text


@pytest.mark.parametrize("before", [None, listed])
def test_giving_back_starts_nothing(before: object) -> None:
    with Machine.create("8GiB") as machine:
        stage, after, gone, sizes = run(machine, on_machine.give_back_at_rest, before)

    assert (after, gone, sizes) == (stage, 0, [0])
    assert stage is (Stage.IMPORTED if before is None else Stage.LISTED)


def test_a_gpu_that_is_lost_hinders_no_other() -> None:
    with Machine.create("2x8GiB") as machine:
        assert run(machine, on_machine.with_a_lost_gpu) == [False, True]


def test_code_gives_back_without_tfgpu_magic() -> None:
    with Machine.create("8GiB") as machine:
        before, after = run(machine, on_machine.run_code)

    assert before[0] - CONTEXT >= GIB
    assert after[0] in LITTLE


def test_every_view_says_it() -> None:
    with Machine.create("8GiB") as machine:
        plan, waiting, in_force = run(machine, on_machine.views)

    assert "growth, gives back" in plan
    assert "growth, gives back" in waiting
    assert "growth, gives back" in in_force
    assert "In force: `growth --release`." in in_force


def test_figures_are_tensorflows_own_under_it_too() -> None:
    with Machine.create("8GiB") as machine:
        in_use, peak, after = run(machine, on_machine.figures)

    assert in_use in range(GIB, GIB + SOME)
    assert peak in range(3 * GIB, 3 * GIB + SOME)
    assert after == in_use  # giving back moves nothing that lives


def test_what_a_restart_gives_back_is_what_is_held_by_then() -> None:
    with Machine.create("8GiB") as machine:
        machine.add_neighbour("4GiB@0")
        before, after = run(machine, on_machine.after_a_restart)

    assert before - after in range(2 * GIB, 2 * GIB + SOME)


def test_an_isolated_call_has_it() -> None:
    with Machine.create("8GiB") as machine:
        gone = run(machine, on_machine.isolated)

    assert gone >= GIB
