"""A checkpoint whose caller copies (driver 615): the contents are the caller's to keep, and the process has none.

Source: CUDA Driver API 13.4, "CUDA Checkpointing"; what is inferred says so.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.simgpu.checkpoint_on_machine import (
    CHECKPOINTED,
    CHECKPOINTING,
    ILLEGAL_STATE,
    INVALID_VALUE,
    LOCKED,
    NOT_FOUND,
    OK,
    OPERATING_SYSTEM,
    OUT_OF_MEMORY,
    RESTORING,
    resident,
)
from tests.simgpu.talking import Talker, talker
from tests.sizes import CONTEXT, MIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

SIZE = 64 * MIB


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine.create("1x2GiB") as machine:
        machine.set_driver("615.71.09")
        yield machine


@pytest.fixture
def held(machine: Machine) -> Iterator[Talker]:
    with talker(machine, f"hold({SIZE})") as held:
        yield held


@pytest.fixture
def caller(machine: Machine) -> Iterator[Talker]:
    """Another process, which has a context of its own on the GPU."""
    with talker(machine, "allocate()") as caller:
        yield caller


def test_contents_go_to_the_caller_and_come_back_and_the_process_keeps_nothing(
    machine: Machine, held: Talker, caller: Talker
) -> None:
    full = resident(held.pid)
    assert caller.ask(f"call('Lock', {held.pid})") == OK
    assert caller.ask(f"begin_custom('Checkpoint', {held.pid})") == OK
    assert caller.ask(f"state({held.pid})") == [OK, CHECKPOINTING]
    assert machine.held(pid=held.pid) == SIZE + CONTEXT  # until all is copied
    assert caller.ask("store()") == [SIZE]
    assert caller.ask(f"call('Unlock', {held.pid})") == ILLEGAL_STATE
    assert caller.ask("complete()") == OK
    assert caller.ask(f"state({held.pid})") == [OK, CHECKPOINTED]
    assert machine.held(pid=held.pid) == 0
    assert resident(held.pid) <= full - MIB  # what was written of it
    assert caller.ask(f"call('Restore', {held.pid})") == INVALID_VALUE  # inferred: the driver does not have it

    assert caller.ask(f"begin_custom('Restore', {held.pid})") == OK
    assert caller.ask(f"state({held.pid})") == [OK, RESTORING]
    assert caller.ask("give_back()") == [0]
    assert caller.ask("complete()") == OK
    assert caller.ask(f"state({held.pid})") == [OK, LOCKED]
    assert caller.ask(f"call('Unlock', {held.pid})") == OK
    assert held.ask("intact()")


@pytest.mark.parametrize(("step", "then"), [("Checkpoint", LOCKED), ("Restore", CHECKPOINTED)])
def test_a_caller_that_dies_before_all_is_copied_leaves_it_as_it_was(
    machine: Machine, held: Talker, caller: Talker, step: str, then: int
) -> None:
    """Inferred: nobody has told."""
    with talker(machine, "allocate()") as other:
        assert caller.ask(f"call('Lock', {held.pid})") == OK
        if step == "Restore":
            assert caller.ask(f"[begin_custom('Checkpoint', {held.pid}), store(), complete()]") == [OK, [SIZE], OK]
        assert other.ask(f"begin_custom({step!r}, {held.pid})") == OK
        other.end(signal.SIGKILL)
        until(lambda: caller.ask(f"state({held.pid})"), lambda found: found == [OK, then])
        if step == "Restore":
            assert machine.held(pid=held.pid) == 0
            assert caller.ask(f"[begin_custom('Restore', {held.pid}), give_back(), complete()]") == [OK, [0], OK]
        assert caller.ask(f"call('Unlock', {held.pid})") == OK
        assert held.ask("intact()")


def test_without_room_it_does_not_come_back(machine: Machine, held: Talker, caller: Talker) -> None:
    assert caller.ask(f"call('Lock', {held.pid})") == OK
    assert caller.ask(f"[begin_custom('Checkpoint', {held.pid}), store(), complete()]") == [OK, [SIZE], OK]
    machine.add_row(1, 0, "1.6GiB")
    assert caller.ask(f"begin_custom('Restore', {held.pid})") == OUT_OF_MEMORY


def test_an_older_driver_has_none_of_it(machine: Machine, held: Talker, caller: Talker) -> None:
    machine.set_driver("610.43.02")
    assert caller.ask(f"call('Lock', {held.pid})") == OK
    assert caller.ask(f"begin_custom('Checkpoint', {held.pid})") == INVALID_VALUE
    assert caller.ask("complete()") == NOT_FOUND
    assert caller.ask(f"calls({held.pid}, 'Checkpoint', 'Restore', 'Unlock')") == [OK, OK, OK]


def test_where_only_ancestors_may_trace_no_other_process_has_the_memory_mapped(
    machine: Machine, held: Talker, caller: Talker
) -> None:
    machine.set_checkpoints(ancestors_only=True)
    assert caller.ask(f"call('Lock', {held.pid})") == OK
    assert caller.ask(f"begin_custom('Checkpoint', {held.pid})") == OPERATING_SYSTEM
    assert caller.ask(f"state({held.pid})") == [OK, LOCKED]
    assert caller.ask(f"calls({held.pid}, 'Checkpoint', 'Restore', 'Unlock')") == [OK, OK, OK]
    assert held.ask("intact()")
