"""Real processes on a simulated machine are parked and come back; the driver and their memory are the judges."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.parking.conftest import PARKER, WORKER, Asking, Start, entry, helpers, only_helper, park, phase
from tests.simgpu.talking import Talker
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.parking import client, parker
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.messages import LOCK, SOCKET, ParkOutcome, Progress
from tfgpu_magic.parking.record import ParkingRecord
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine


@pytest.mark.smoke
def test_its_memory_goes_and_comes_back_as_it_was(machine: Machine, programs: Start) -> None:
    program = programs(GIB)
    gone = park(program.pid, name="train.ipynb")

    assert gone.refusals == ()
    assert machine.held() == 0
    found = entry(program.pid)
    assert found is not None
    assert (found.phase, found.name, found.size) == (Phase.PARKED, "train.ipynb", GIB + CONTEXT)

    assert park(program.pid) == ParkOutcome(entry=found)  # it is so already

    back = client.unpark(program.pid)

    assert back.done
    assert client.unpark(program.pid).done
    assert machine.held(pid=program.pid) == GIB + CONTEXT
    assert program.ask("intact()")
    until(lambda: machine.held() == GIB + CONTEXT)  # the placeholder is gone
    assert phase(program.pid) is Phase.BACK


def test_many_cycles_leave_nothing_behind(machine: Machine, programs: Start) -> None:
    program = programs(GIB)
    park(program.pid)
    client.unpark(program.pid)
    helper = only_helper(machine)
    before = helper.num_fds()
    for _ in range(10):
        assert park(program.pid).done
        assert client.unpark(program.pid).done

    assert helper.num_fds() <= before + 2
    assert len(helpers(machine, WORKER)) <= 2
    assert program.ask("intact()")
    found = entry(program.pid)
    assert found is not None
    assert found.returns == 11


def one_that_waits(programs: Start) -> tuple[Talker, Talker, Asking, list[Progress]]:
    """Give a program that was parked and waits to come back, the one that has its room, and what the first is told."""
    one = programs(GIB)
    assert park(one.pid).done
    other, said = programs(GIB), list[Progress]()
    coming = Asking(client.unpark, one.pid, tell=said.append)
    until(lambda: any(each.step == "waits" for each in said))
    return one, other, coming, said


def test_the_room_of_one_is_anothers_meanwhile(machine: Machine, programs: Start) -> None:
    one, other, coming, said = one_that_waits(programs)
    waits = next(each for each in said if each.step == "waits")
    room = waits.rooms[0]

    assert room.holders == ((other.pid, GIB + CONTEXT),)
    assert waits.seconds is not None
    assert machine.held(pid=one.pid) == 0

    assert park(other.pid).done
    assert coming.outcome().done
    assert one.ask("intact()")
    one.end(signal.SIGKILL)
    assert client.unpark(other.pid).done
    assert other.ask("intact()")


def test_two_who_want_it_back_are_told_the_same_and_each_may_go(machine: Machine, programs: Start) -> None:
    one, other, first, first_said = one_that_waits(programs)
    second_said: list[Progress] = []
    left = threading.Event()
    second = Asking(client.unpark, one.pid, tell=second_said.append, wanted=lambda: not left.is_set())
    until(lambda: second_said and second_said[-1] in first_said and second_said[-1].rooms)
    left.set()

    assert second.outcome().refusals == (why.CANCELLED(),)
    assert not first.done
    assert phase(one.pid) is Phase.PARKED
    other.end(signal.SIGKILL)
    assert first.outcome().done
    assert one.ask("intact()")


def test_a_process_with_very_many_open_files_is_answered(machine: Machine, programs: Start) -> None:
    """Else a notebook with a thousand files open would never come back."""
    code = (
        "import os; from tfgpu_magic.parking import client; from tfgpu_magic.parking.checks import Inside; "
        "files = [os.open('/dev/null', os.O_RDONLY) for _ in range(1100)]; "
        "print(*(one.reason.name for one in client.check(inside=Inside()).refusals))"
    )
    done = machine.run(
        ["bash", "-c", 'ulimit -n 2048 && exec "$@"', "bash", sys.executable, "-c", code],
        capture_output=True, text=True,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("holds-nothing\n", "")


def test_ctrl_c_gives_the_prompt_back_and_the_process_stays_parked(machine: Machine, programs: Start) -> None:
    one = programs(GIB)
    park(one.pid)
    programs(GIB)

    def interrupt(said: Progress) -> None:
        if said.step == "waits":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.unpark(one.pid, tell=interrupt)
    assert phase(one.pid) is Phase.PARKED


def test_several_take_turns_and_none_finds_too_little(machine: Machine, programs: Start) -> None:
    several = [programs(GIB)]
    for _ in range(2):
        assert park(several[-1].pid).done
        several.append(programs(GIB))
    first, second, third = several
    waiting = [Asking(client.unpark, first.pid), Asking(client.unpark, second.pid)]
    time.sleep(0.5)
    assert park(third.pid).done
    turned = {Phase.BACK, Phase.PARKED}
    until(lambda: machine.held() == GIB + CONTEXT and {phase(first.pid), phase(second.pid)} == turned)
    there = first if phase(first.pid) is Phase.BACK else second
    assert there.ask("intact()")
    assert park(there.pid).done

    assert [one.outcome().refusals for one in waiting] == [(), ()]
    assert {phase(one.pid) for one in several} == {Phase.BACK, Phase.PARKED}
    assert Phase.FAILED not in {phase(one.pid) for one in several}


def test_who_has_not_started_a_process_cannot_say_that_it_is_idle(machine: Machine, programs: Start) -> None:
    """Else a notebook could be parked in the middle of a cell by another one."""
    first = programs()
    code = (
        "import sys; from tfgpu_magic.parking import client; from tfgpu_magic.parking.checks import Inside; "
        "print(*(one.reason.name for one in client.park(int(sys.argv[1]), inside=Inside()).refusals))"
    )
    other = machine.run([sys.executable, "-c", code, str(first.pid)], capture_output=True, text=True)

    assert other.stdout.split() == ["not-asked"]
    assert first.ask("intact()")


def test_what_could_be_parked_is_told_without_parking_it(machine: Machine, programs: Start) -> None:
    program = programs()

    assert client.check(program.pid, inside=Inside()).done
    assert client.check(program.pid, inside=Inside(busy=True)).refusals == (why.BUSY(),)
    assert machine.held(pid=program.pid) == GIB + CONTEXT


# --- the helper ---


def test_who_waits_is_handed_over_to_the_next_helper(machine: Machine, programs: Start) -> None:
    one, other, coming, _ = one_that_waits(programs)
    helper = only_helper(machine)
    helper.terminate()
    until(lambda: helper.pid not in [each.pid for each in helpers(machine, PARKER)], every=0.5)
    other.end(signal.SIGKILL)

    assert coming.outcome().done
    assert one.ask("intact()")


def test_a_board_that_is_removed_takes_nothing_with_it(machine: Machine, programs: Start, tmp_path: Path) -> None:
    program = programs()
    park(program.pid)
    shutil.rmtree(tmp_path / "board")
    until(lambda: phase(program.pid) is Phase.PARKED)

    assert client.unpark(program.pid).done
    assert program.ask("intact()")


def test_two_helpers_are_never_there(machine: Machine, programs: Start) -> None:
    several = [programs(GIB // 4) for _ in range(3)]
    asking = [Asking(park, one.pid) for one in several]

    assert all(one.outcome().done for one in asking)
    until(lambda: len(helpers(machine, PARKER)) == 1, every=0.5)  # those that came too late are on their way out
    assert machine.held() == 0


def test_a_helper_that_hangs_is_said_to_and_nothing_has_changed(
    machine: Machine, programs: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = programs()
    assert client.check(program.pid, inside=Inside()).done
    helper = only_helper(machine)
    helper.suspend()
    try:
        monkeypatch.setattr(client, "SILENCE", 1.0)
        with pytest.raises(client.ParkerHangs, match="does not answer"):
            park(program.pid)
    finally:
        helper.resume()
    assert program.ask("intact()")


def test_a_helper_with_nothing_to_do_ends(machine: Machine) -> None:
    with BoardDirectory() as place:
        held = parker.lock(place)
        assert held is not None
        asyncio.run(parker.Parker(place, held, ParkingRecord(), sys.path, linger=0.1).run())

        assert not (place.path / place.name(SOCKET)).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_helper_that_ends_leaves_what_is_parked_to_the_next(
    machine: Machine, programs: Start, number: signal.Signals
) -> None:
    program = programs()
    park(program.pid)
    only_helper(machine).send_signal(number)
    until(lambda: not helpers(machine, PARKER) and not helpers(machine, WORKER), every=0.5)

    assert phase(program.pid) is Phase.PARKED
    assert client.unpark(program.pid).done
    assert program.ask("intact()")


def test_a_helper_whose_lock_was_removed_leaves_the_socket_of_the_next(machine: Machine) -> None:
    async def story(place: BoardDirectory, held: int) -> bool:
        helper = asyncio.ensure_future(parker.Parker(place, held, ParkingRecord(), []).run())
        listening = Path(place.short_path(SOCKET))
        while not listening.exists():
            await asyncio.sleep(0.01)
        place.remove(LOCK)
        place.remove(SOCKET)
        with socket.socket(socket.AF_UNIX) as following:
            following.bind(place.short_path(SOCKET))
            await asyncio.wait_for(helper, 60)
            return listening.exists()

    with BoardDirectory() as place:
        held = parker.lock(place)
        assert held is not None
        assert asyncio.run(story(place, held))
