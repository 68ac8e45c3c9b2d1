"""What a call has answered is kept, whatever comes after; what it was given of this process's is as it was."""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from cloudpickle import cloudpickle as internals
from jupyter_client.session import Session

from tests.isolate import deeds
from tests.isolate.rig import RUNNER, call, prepare, run, soon
from tests.sizes import MIB
from tests.waiting import until
from tfgpu_magic import IsolatedExecutor, isolated
from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.isolate import user_code, watch
from tfgpu_magic.isolate.call import ANSWER, APART, LEAVE, SHOW, SHOWN, CellCall, Outcome
from tfgpu_magic.isolate.cells.cell import Cell, unpickle_each
from tfgpu_magic.isolate.leasing import Lease
from tfgpu_magic.isolate.process import shell, wire
from tfgpu_magic.isolate.run import Run, _CallWatch
from tfgpu_magic.isolate.sinks import Sink, SubmittingCell
from tfgpu_magic.isolate.values import copies, pickling, plain
from tfgpu_magic.machine import host_memory
from tfgpu_magic.policy.policy import NOTHING

pytestmark = pytest.mark.usefixtures("tracked", "light")


@pytest.fixture(scope="module")
def tracked() -> None:
    """Have a resource tracker run, as where this process uses shared memory."""
    resource_tracker.ensure_running()


# What is this process's


def attach(name: str) -> int:
    memory = SharedMemory(name=name)
    view = memory.buf
    assert view is not None
    view[0] += 1
    found = view[0]
    del view
    memory.close()
    return found


def test_shared_memory_of_this_process_outlives_the_calls_that_attach_to_it() -> None:
    memory = SharedMemory(create=True, size=1)
    try:
        assert [run(attach, (memory.name,), {}) for _ in range(2)] == [1, 2]
    finally:
        memory.close()
        memory.unlink()


def test_a_file_that_is_mapped_is_mapped_there_too_and_changes(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "file", np.int32, "w+", shape=(4, 300_000))
    mapped[:] = 1
    rows, plainly, fixed = mapped[1:], np.asarray(mapped), np.memmap(tmp_path / "file", np.int32, "r", shape=(8,))
    private = np.memmap(tmp_path / "file", np.int32, "c", shape=(2,))
    private[:] = 7

    def change(*given: Any) -> list[Any]:
        rows, backwards, plainly, fixed, private = given
        rows[0] = 2
        rows.flush()
        plainly[0, 0] = 3
        backwards[0, 0] = 4
        return [type(part).__name__ for part in given] + [fixed.flags.writeable, int(fixed[0]), private.tolist()]

    values = (rows, mapped[::-1, ::-2], plainly, fixed, private)
    sent = pickling.dump_call(change, values, {})

    assert sent.size < MIB
    assert run(change, values, {}) == [*["memmap"] * 2, "ndarray", *["memmap"] * 2, False, 3, [7, 7]]
    assert [mapped[1].max(), mapped[0, 0], mapped[3, -1]] == [2, 3, 4]


def test_a_copy_for_a_later_call_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros(65 * MIB, np.uint8)
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 100 * MIB)
    with pytest.raises(OSError, match=r"no room for 65 MiB of memory to share .*: 100 MiB are free"):
        run(deeds.echo, (array,), {})
    with IsolatedExecutor(gpus=0) as executor, pytest.raises(OSError, match="no room for 65 MiB"):
        executor.submit(deeds.echo, array).result()
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 200 * MIB)
    kept = copies.copy_for_later(pickling.dump(array))
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 0)

    assert copies.copy_for_later(pickling.dump(array)).size == kept.size  # what is copied already takes no more


def test_a_stream_of_this_process_that_fails_ends_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for broken in (closed, SimpleNamespace(write=len)):  # which cannot be flushed
        monkeypatch.setattr(sys, "stdout", broken)
        one, _ = call(deeds.flood_lines, MIB)
        one.sink = Sink()
        assert one.run_process(prepare()).value() is None


def test_a_display_that_cannot_be_sent_to_its_cell_ends_no_call() -> None:
    kernel = SimpleNamespace(get_parent=dict, session=Session(), iopub_socket=None)
    cell = SubmittingCell(kernel)
    kernel.get_parent = lambda: {"header": {"msg_id": "another"}}

    cell.show({"data": {"text/plain": "half a pair: \ud83d"}, "metadata": {}})


# What it has answered


def test_an_answer_behind_a_pile_of_displays_is_taken_when_the_process_has_ended() -> None:
    (one, _), (ours, theirs), (out, end) = call(deeds.nothing), wire.pair(), os.pipe()
    os.close(end)
    one.sink, one.pid = Sink(), 1
    process: Any = SimpleNamespace(connection=ours, out=out, err=out)  # only this much of it is there
    loop = _CallWatch(one, prepare(), process)
    with ours, theirs, loop._selector:
        for _ in range(5):  # of forks, which wait for no reply
            wire.send(theirs, SHOW, [pickle.dumps({"data": {}})])
        wire.send(theirs, ANSWER, Outcome(values=[memoryview(pickle.dumps("of hours"))]).parts)
        wire.send(ours, SHOWN)  # which is not read: the connection is reset
        theirs.close()
        loop._drain()
    os.close(out)
    assert (outcome := loop._end()) is not None
    assert outcome.value() == "of hours"


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def stale() -> None:
    raise OSError(errno.ESTALE, "Stale file handle")


@pytest.mark.parametrize(
    ("answered", "given_back", "late"), [(ctrl_c, bool, True), (bool, ctrl_c, True), (bool, stale, False)]
)
def test_what_comes_when_the_call_has_answered_takes_nothing(
    answered: Callable[[], object], given_back: Callable[[], object], late: bool
) -> None:
    @contextlib.contextmanager
    def lease() -> Iterator[Lease]:
        yield Lease(NOTHING)
        given_back()

    def leave(_: object) -> str:
        answered()
        return LEAVE

    one, _ = call(deeds.echo, 5)
    one.answered = leave

    assert one.run(lease(), RUNNER).value() == 5
    assert one.interrupted_late == late


class Made:
    """A value that notes when it is made, and is interrupted then as often as is asked for."""

    noted: ClassVar = list[str]()
    times: ClassVar = list[int]()

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __setstate__(self, state: dict[str, str]) -> None:
        self.noted.append(state["name"])
        if self.times:
            os.kill(os.getpid(), self.times.pop())
        vars(self).update(state)


def test_an_interrupt_amid_the_making_of_an_answer_takes_nothing_of_it() -> None:
    Made.times[:] = [signal.SIGINT]

    assert isolated(Made)("whole").name == "whole"
    assert Made.times == []


def leave_slowly(marks: Path) -> str:
    def wait() -> None:
        (marks / "leaving").touch()
        while not (marks / "go").exists():
            time.sleep(0.01)
        (marks / "saved").touch()

    atexit.register(wait)
    threading.Thread(target=time.sleep, args=(0.5,)).start()
    return "done"


def test_an_end_takes_its_time_and_an_interrupt_meanwhile_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PATIENCE", 0.1)
    one, paper = call(leave_slowly, tmp_path)

    def interrupt() -> None:
        until(lambda: "has not ended" in paper.text["stderr"])
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: "The next interrupt kills it" in paper.text["stderr"])
        (tmp_path / "go").touch()

    with soon(tmp_path / "leaving", interrupt):
        answer = one.run_process(prepare())

    assert (answer.value(), one.status, one.interrupted_late) == ("done", 0, True)
    assert (tmp_path / "saved").exists()


def test_an_answer_that_cannot_be_taken_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    receive, failed = wire.receive, list[str]()

    def fail_once(end: Any) -> Any:
        message = receive(end)
        if message is not None and message.kind == ANSWER and not failed:
            failed.append(message.kind)
            raise OSError(errno.EMFILE, "Too many open files")
        return message

    monkeypatch.setattr(wire, "receive", fail_once)
    one, paper = call(deeds.echo, np.ones(2 * MIB, np.uint8))

    assert one.run_process(prepare()).value().sum() == 2 * MIB
    assert failed == [ANSWER]
    assert "Too many open files" in paper.text["stderr"]


def test_a_value_whose_module_is_missing_here_can_be_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "only_there.py").write_text("class Found:\n    number = 5\n")

    def find() -> Any:
        sys.path.append(str(tmp_path))
        import only_there  # type: ignore[import-not-found]

        return only_there.Found()

    with pytest.raises(Unpicklable, match="only_there") as caught:
        run(find, (), {})
    sys.path.append(str(tmp_path))
    try:
        assert caught.value.value is not None
        assert caught.value.value().number == 5
        assert pickle.loads(pickle.dumps(caught.value)).value is None
        assert Unpicklable.__new__(Unpicklable).value is None  # as libraries make one that they were sent
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("only_there", None)


def test_a_class_that_was_made_and_not_filled_is_made_again_by_the_next_load() -> None:
    class Net:
        def predict(self) -> int:
            return 5

    Net.__module__ = "__main__"
    number = "b51a2c3d4e5f60718293a4b5c6d7e8f9"
    internals._DYNAMIC_CLASS_TRACKER_BY_CLASS[Net] = number
    internals._DYNAMIC_CLASS_TRACKER_BY_ID[number] = Net
    pickled = pickling.dump_self_contained((Net(),))
    del internals._DYNAMIC_CLASS_TRACKER_BY_ID[number]

    class Broken(pickling.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if name == "_class_setstate":
                raise KeyboardInterrupt
            return super().find_class(module, name)

    with pytest.raises(KeyboardInterrupt):
        pickling.load(pickled.parts, Broken)

    assert pickling.load(pickled.parts)[0].predict() == 5


def test_a_name_that_arrives_is_lost_only_by_a_second_interrupt() -> None:
    names = pickling.dump({"x": Made()}).parts
    outcome = Outcome(values=names, given=((("x",), len(names)),))
    came = []
    for count in (1, 2):
        Made.times[:] = [signal.SIGINT] * count
        arrival = unpickle_each(outcome)
        came.append((list(arrival.values), list(arrival.lost)))

    assert came == [(["x"], []), ([], ["x"])]


def test_what_a_job_brings_is_made_only_when_the_notebook_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {name: Made(name) for name in "xy"}

    def answer(pieces: Sequence[dict[str, Made]]) -> Outcome:
        dumped = [(tuple(piece), pickling.dump(piece).parts) for piece in pieces]
        given = tuple((names, len(parts)) for names, parts in dumped)
        return Outcome(values=tuple(part for _, parts in dumped for part in parts), given=given)

    def end() -> Outcome:
        whole, pieces = answer([values]), answer([{name: value} for name, value in values.items()])
        replies.extend([job._take(whole), job._take(pieces)])
        return pieces

    Made.noted.clear()
    there, replies, back, waits = dict[str, Any](), list[str](), threading.Event(), threading.Event()
    job: Any = Cell.__new__(Cell)
    job._call, job._shell = CellCall(detach=True), SimpleNamespace(user_ns=there)
    job._before, job._arrival, job.running, job._deferred = Snapshot(time=0.0), None, Run(call=job._call), None
    job._outcome, job._show_summary = end, lambda *_: None

    def wait() -> None:
        waits.set()
        back.wait()

    monkeypatch.setattr(user_code, "wait", wait)
    thread = threading.Thread(target=job._end)
    thread.start()
    until(waits.is_set)  # its process has left: it holds no room that the notebook needs
    made = Made.noted.copy()
    back.set()
    thread.join()

    assert (made, replies) == ([], [APART, LEAVE])
    assert (Made.noted, {name: value.name for name, value in there.items()}) == (["x", "y"], {"x": "x", "y": "y"})


# Other frameworks


class _Storage:
    def __init__(self, kind: str) -> None:
        self.device = SimpleNamespace(type=kind)

    def __reduce_ex__(self, protocol: object) -> Any:
        assert self.device.type == "cpu"  # else it would take the GPU where it arrives
        return str, ("by itself",)

    def cpu(self) -> Any:
        return type(self)("cpu")


def test_what_pytorch_has_on_a_gpu_comes_home_in_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = type("UntypedStorage", (_Storage,), {"__module__": "torch.storage", "nbytes": lambda _: 54321})
    torch, demanded = ModuleType("torch"), list[int]()
    vars(torch)["UntypedStorage"] = storage
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(host_memory, "check_room", demanded.append)
    there = pickling.dump_self_contained([storage("cuda"), storage("cpu")], reduce=plain.reduce)

    assert pickling.load(there.parts) == ["by itself", "by itself"]
    assert 54321 in demanded  # before it is copied


# Small ends


def test_a_value_that_cannot_be_displayed_comes_all_the_same() -> None:
    cycle: dict[str, Any] = {}
    cycle["again"] = cycle

    class Odd:
        pass

    data, _ = shell.display_of(SimpleNamespace(format=lambda _: (cycle, {})), Odd())

    assert "Odd object at" in data["text/plain"]


def test_memory_that_a_stream_of_small_parts_takes_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 70 * MIB)

    assert pickling.dump(bytes(MIB)).size > MIB
    with pytest.raises(OSError, match="no room"):
        pickling.dump([bytes(10 * MIB) + bytes([number]) for number in range(10)])
    copied = list[int]()
    monkeypatch.setattr(host_memory, "check_room", copied.append)
    rows = np.zeros((2, 40 * MIB), np.uint8)[:, ::2]
    pickling.dump(np.zeros((2, 40 * MIB), np.uint8).T)
    assert copied == []
    pickling.dump_self_contained(rows)
    assert copied[0] == rows.nbytes  # before NumPy makes one piece of it
