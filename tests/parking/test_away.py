"""The gate stays closed while the state is away, or may be, whatever becomes of the driver's calls: made-up ones."""

from __future__ import annotations

import atexit
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.parking.house import EVENTS, QUICK, Driver, Worker, parkable
from tests.waiting import until
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.gpu_state import GpuState
from tfgpu_magic.parking.inside import automatic, ipython, unblocked
from tfgpu_magic.parking.inside import notebook as parking
from tfgpu_magic.parking.inside.gate import NotBack
from tfgpu_magic.parking.inside.notebook import ProcessParking
from tfgpu_magic.parking.states import CudaState, Phase


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def notebook(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessParking]:
    start: Any = partial(Worker, driver)
    monkeypatch.setattr(parking, "GpuState", partial(GpuState, start=start, timeouts=QUICK))
    monkeypatch.setattr(ipython, "block_cells", lambda *_: iter(()))
    monkeypatch.setattr(parking, "of_process", lambda **_: Inside())
    monkeypatch.setattr(parking, "quieten", lambda *_: None)
    monkeypatch.setattr(cuda, "quieten", lambda _: True)
    monkeypatch.setattr(parking, "here", lambda: "notebook")
    magics = SimpleNamespace(parking_on_open_module=False, idle_release=SimpleNamespace(put_off=lambda: True))
    with parkable():
        shell = SimpleNamespace(magics_manager=SimpleNamespace(registry={"TfGpuMagics": magics}))
        notebook = ProcessParking(shell)
        yield notebook
        atexit.unregister(notebook._ending._at_exit)
        notebook._gate.open()


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("step", range(5))
def test_nothing_runs_where_the_state_is_away(notebook: ProcessParking, driver: Driver, step: int, event: str) -> None:
    driver.script = {step: event}
    notebook.park()
    assert notebook.parked or driver.state is CudaState.RUNNING
    until(lambda: not notebook.state.unsettled)
    until(lambda: notebook.parked == (driver.state is CudaState.CHECKPOINTED))
    driver.script.clear()
    notebook._come(in_cell=True)

    assert not notebook.parked
    assert driver.state is CudaState.RUNNING


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("step", range(7))
def test_nothing_runs_before_the_state_is_back(notebook: ProcessParking, driver: Driver, step: int, event: str) -> None:
    notebook.park()
    driver.script = {5 + step: event}
    try:
        notebook._come(in_cell=True)
    except NotBack:
        assert notebook.parked
    else:
        assert driver.state is CudaState.RUNNING
    until(lambda: not notebook.state.unsettled)
    driver.script.clear()
    notebook._come(in_cell=True)

    assert (notebook.parked, driver.state, notebook.state.known and notebook.state.known.phase) == (
        False, CudaState.RUNNING, Phase.BACK,
    )  # fmt: skip


def test_who_asks_one_to_park_that_is_on_its_way_back_hears_that_it_is_not_parked(notebook: ProcessParking) -> None:
    notebook.park()
    parked = notebook.asked("park", 0.0)
    notebook.state.move(Phase.RESTORING)
    returns = notebook.asked("park", 0.0)
    notebook.state.move(Phase.PARKED)

    assert (parked.refusals, returns.refusals) == ((), (why.RETURNS(),))


def test_who_asks_one_to_park_whose_way_out_hangs_hears_that(notebook: ProcessParking) -> None:
    notebook.park()
    notebook.state.move(Phase.CHECKPOINTING)
    said = notebook.asked("park")
    notebook.state.move(Phase.PARKED)

    assert said.refusals == (why.UNANSWERED(Phase.CHECKPOINTING.value),)


def test_who_is_answered_beside_cells_parks_nothing_that_is_back(notebook: ProcessParking, driver: Driver) -> None:
    notebook.park()
    notebook._come()

    assert notebook.asked("park").refusals == (why.BUSY(),)
    assert [driver.state] == [CudaState.RUNNING]


def test_a_cell_begun_before_the_gate_closes_is_seen(notebook: ProcessParking, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[str] = []
    close = notebook._gate.close

    def closed() -> tuple[str, ...]:
        running.append("a cell that another thread has just begun")
        return close()

    def of_process(*, busy: bool, **_: object) -> Inside:
        return Inside(against=(why.BUSY(),) if busy else ())

    monkeypatch.setattr(notebook._gate, "close", closed)
    monkeypatch.setattr(unblocked, "cell_runs", lambda _: bool(running))
    monkeypatch.setattr(parking, "of_process", of_process)

    assert notebook.park().refusals == (why.BUSY(),)
    assert not notebook.parked


def test_what_is_locked_as_parking_ends_in_doubt_is_unlocked_unasked(notebook: ProcessParking, driver: Driver) -> None:
    driver.script = {2: "hung after", 3: "hung before"}
    notebook.park()

    assert notebook.parked
    assert [driver.state] == [CudaState.LOCKED]
    until(lambda: not notebook.parked)
    assert [driver.state] == [CudaState.RUNNING]


def test_a_cell_is_not_run_where_no_worker_can_start(notebook: ProcessParking, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise NotImplementedError

    notebook.park()
    notebook.state.rest()
    monkeypatch.setattr(notebook.state, "_start", fails)

    with pytest.raises(NotBack, match="NotImplementedError"):
        notebook._come()
    assert notebook.parked


def test_a_return_that_ends_while_a_cell_without_the_gpu_asks_for_it_is_found(
    notebook: ProcessParking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "withhold", lambda *_: None)
    notebook.park()
    notebook._go_on_without()
    changed, notebook.state._changed = notebook.state._changed, lambda _: None
    notebook.state.move(Phase.BACK)  # its thread is about to open the gate
    notebook.bring_back()

    assert not notebook.parked
    changed(notebook.state.known)
    assert not notebook.parked


def test_a_return_that_ends_while_its_user_goes_on_without_leaves_nothing_withheld(
    notebook: ProcessParking, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorflow = SimpleNamespace(reads="tensors")

    def withhold(replace: Callable[[object, str, object], None], _: str) -> None:
        assert notebook._gate.closed  # what waits for it to open finds the GPU withheld
        notebook.state.move(Phase.BACK)  # on another thread
        replace(tensorflow, "reads", "nothing")

    monkeypatch.setattr(parking, "withhold", withhold)
    notebook.park()
    notebook._go_on_without()

    assert not notebook.parked
    assert tensorflow.reads == "tensors"


def test_the_gpu_is_withheld_while_the_state_is_away(notebook: ProcessParking, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow = SimpleNamespace(reads="tensors")
    monkeypatch.setattr(parking, "withhold", lambda replace, _: replace(tensorflow, "reads", "nothing"))
    notebook.park()
    notebook._go_on_without()
    notebook._gate.close()  # as it asks for it in a cell
    notebook._go_on_without()

    assert (tensorflow.reads, notebook._gate.closed) == ("nothing", False)
    notebook.bring_back()
    assert (tensorflow.reads, notebook.parked) == ("tensors", False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_process_waits_for_the_end_of_its_first_park(
    notebook: ProcessParking, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    said, before = [], signal.getsignal(number)

    def closed() -> tuple[str, ...]:
        signal.raise_signal(number)
        said.append("parks")
        return ()

    monkeypatch.setattr(notebook._ending, "arrange", lambda **_: signal.signal(number, lambda *_: said.append("ends")))
    monkeypatch.setattr(notebook._gate, "close", closed)
    try:
        notebook.park()
    finally:
        signal.signal(number, before)

    assert said == ["parks", "ends"]


@pytest.mark.parametrize("change", range(4))
def test_an_interrupt_amid_a_change_of_handlers_leaves_them_be(change: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    set_handler, changes = signal.signal, list[int]()

    def handled(number: int, handler: Any) -> Any:
        was = set_handler(number, handler)
        changes.append(number)
        if len(changes) == change + 1:
            signal.raise_signal(signal.SIGINT)
        return was

    try:
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(signal, "signal", handled)
            patch.setattr(signal, "getsignal", lambda number: print if number == signal.SIGTERM else signal.SIG_IGN)
            with parking.uninterrupted():
                pass
        found = [signal.getsignal(number) for number in numbers]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

    assert found == [signal.default_int_handler] * 2


def test_how_one_ends_that_is_to_park_itself_is_arranged_where_signals_can_be(
    notebook: ProcessParking, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(parking, "of", lambda _: notebook)
    monkeypatch.setattr(notebook._ending, "arrange", lambda **_: threads.append(threading.current_thread()))
    events = SimpleNamespace(register=lambda *_: None, unregister=lambda *_: None)
    automatic.start(SimpleNamespace(events=events), 1e9).stop()

    assert threads == [threading.main_thread()]
