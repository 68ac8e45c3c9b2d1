"""`%%tf_gpu isolate`, in the kernel: what the cell reads goes along, its outputs come back, and the end is told."""

from __future__ import annotations

import contextlib
import functools
import linecache
import pickle
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfgpu_magic import control, frameworks
from tfgpu_magic.errors import TfGpuError, Unpicklable
from tfgpu_magic.isolate import allocation
from tfgpu_magic.isolate.answer import Answer
from tfgpu_magic.isolate.call import Call
from tfgpu_magic.isolate.cells.arrival import Arrival, arrive
from tfgpu_magic.isolate.cells.deferred import afterwards, deferred, display_once
from tfgpu_magic.isolate.cells.errors import as_told, debug_no_frames, hint, not_run, raised
from tfgpu_magic.isolate.cells.facts import CellSettings
from tfgpu_magic.isolate.cells.inputs import chosen, pickled
from tfgpu_magic.isolate.cells.line import CellLine
from tfgpu_magic.isolate.cells.names import names
from tfgpu_magic.isolate.cells.summary import Summary, crowd, summarise
from tfgpu_magic.isolate.lease import Abandoned, Lease
from tfgpu_magic.isolate.leases import LEASES
from tfgpu_magic.isolate.process import exit_cause
from tfgpu_magic.isolate.process.order import APART, LEAVE
from tfgpu_magic.isolate.run import run
from tfgpu_magic.isolate.sinks import Sink
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.snapshot import Snapshot

_RUNNER = "tfgpu_magic.isolate.cells.shell:cell"

_TRAITS = ("ast_node_interactivity", "autoawait", "colors")
"""What a cell's shell has of the notebook's."""


class Cell:
    """A cell to be run once, in a process of its own, with the notebook's names as they are now.

    Args:
        shell: the notebook's IPython.
        asked: what its line asks.
        body: its text.
        sink: where its output goes.

    Attributes:
        title: its first line that says more than an import does.
        sink: where its output goes.
        settle: puts the names that it has brought into the notebook, where that waits for the end of another cell.

    Raises:
        PolicyError: a name to send is not in the notebook.
        Refused: the policy cannot be enforced here and now.
        Unpicklable: something that it reads cannot be sent.
    """

    def __init__(self, shell: Any, asked: CellLine, body: str, sink: Sink) -> None:
        self._shell, self._asked, self.sink = shell, asked, sink
        self.title = _title(body)
        self._before: Snapshot | None = None
        seen = names(shell.transform_cell(body))
        settings = CellSettings(
            source=_as_numbered(body),
            number=shell.displayhook.prompt_count,  # not execution_count, which newer IPythons raise too early
            outputs=asked.outputs,
            passing=seen.imports | seen.turns,
            changes=seen.changes,
            shell={name: getattr(shell, name) for name in _TRAITS},
            traceback=shell.InteractiveTB.mode,
            cells=_cells(shell),
        )
        inputs = chosen(shell, seen.reads, asked)
        self._sent = frozenset(inputs)
        values = pickled(inputs)
        values = values.copied() if asked.detach else values  # the notebook goes on, and changes its arrays
        self._work: Sequence[memoryview] = (memoryview(pickle.dumps(settings)), *values.parts)
        self._call: Call | None = None
        self._answered: Answer | None = None
        self._arrival: Arrival | None = None
        self._between = deferred(shell) if asked.detach else None
        self._stopped = False
        self.settle: Callable[[], None] = lambda: None

    @property
    def pid(self) -> int | None:
        """Its process, once it has one."""
        return None if self._call is None else self._call.pid

    def stop(self) -> None:
        """Interrupt it, from any thread; where it has not begun, as it waits for GPUs, it does not."""
        self._stopped = True
        if self._call is not None:
            self._call.interrupt()
        LEASES.stir()

    def run(self) -> Any:
        """Run it, show how it ended, bring its names into the notebook, and return its value.

        Raises:
            BaseException: what the cell raised; its traceback is the one that the cell's process saw.
        """
        value, error = self._end()
        if error is not None:
            debug_no_frames(self._shell)
        if isinstance(error, SystemExit):
            raise error from None  # the cell's way out is no trouble, and IPython 7 cannot show its cause
        if error is not None:
            raise error
        return value

    def _end(self) -> tuple[Any, BaseException | None]:
        """Run it to its end; its value, or what is to be raised. All else is let go of here, and in no traceback."""
        begin, interrupt = time.monotonic(), None
        try:
            answer = self._answer()
        except (TfGpuError, OSError, KeyboardInterrupt) as error:
            if self._answered is None:
                if self.pid is not None:
                    self._show(summarise((), None, look(), self.pid, time.monotonic() - begin))
                return None, as_told(self._stop_from_outside() or error.with_traceback(None))
            answer = self._answered
            interrupt = as_told(KeyboardInterrupt("The cell had ended, and what it gives is here."))
        arrival, self._answered, self._arrival = self._arrival, None, None
        if arrival is None:
            return None, not_run(answer)
        facts, value = arrival.facts, arrival.values.pop("", None)
        self._put(arrival.values)
        told = raised(answer)
        self._tell(answer, arrival, told)
        told = told or interrupt or self._lost([name for name in arrival.lost if name], value)
        if told is not None or facts.shown is None or (value is None and "" not in arrival.lost):
            return None, told
        if "" in arrival.lost:
            self.sink.show({"data": facts.shown[0], "metadata": facts.shown[1]})
        elif not self._asked.detach and facts.shown[0].keys() - {"text/plain"}:
            # The text is that of what came home: an array, and no tensor.
            display_once(self._shell, value, facts.shown)
        return value, None

    def _tell(self, answer: Answer, arrival: Arrival, error: BaseException | None) -> None:
        """Show how it ended."""
        uses = answer.facts.uses
        closing = summarise(
            uses,
            self._before,
            self._look_again(answer),
            self.pid,
            answer.seconds,
            arrival.facts,
            failed=answer.failed,
            lost=arrival.lost,
            hint=hint(error, self._shell.user_ns.keys() - self._sent),
        )
        self._show(closing)
        if error is not None and frameworks.out_of_memory(error) and self._before:
            self._show(crowd(uses, answer.facts.limited, self._before, self.pid, control.names(self._before)))

    def _answer(self) -> Answer:
        work, self._work = self._work, ()
        call = Call(
            work=work,
            timeout=self._asked.options.timeout,
            sink=self.sink,
            warming=self._tell_of_warming,
            answered=self._take,
        )
        del work  # what was sent need not be kept: a job may run for hours
        with contextlib.suppress(Abandoned):
            return run(call, self._lease(), _RUNNER, begun=self._begin)
        raise KeyboardInterrupt("The cell was stopped before it began.")

    def _begin(self, call: Call) -> None:
        self._call = call
        if self._stopped:  # when there was no call yet that could be interrupted
            raise Abandoned

    def _lease(self) -> contextlib.AbstractContextManager[Lease]:
        """GPUs of its own where a number of them is asked; else those that the notebook sees, and what it takes there.

        What its own words take, that is: the notebook's policy holds in cells, too, that never use a GPU.
        """
        asked = self._asked.options
        if asked.gpus is not None:
            waiting = self._tell_of_waiting(allocation.gpus(asked.gpus))
            return LEASES.lease(asked.policy, asked.gpus, wanted=self._wanted, waiting=waiting)
        if any(request.limited for request in asked.policy.memory):
            return LEASES.share(asked.policy, wanted=self._wanted, waiting=self._tell_of_waiting("GPU memory"))
        policy = control.inherited().then(asked.policy)
        return contextlib.nullcontext(Lease(policy, look() if policy.requests else None))

    def _take(self, answer: Answer) -> str:
        """Take what the cell gives while its process still has it; what cannot be had together is asked for apart."""
        if self._before is None:
            self._before = look()
        if not answer.values:
            return LEAVE
        self._answered, self._arrival = answer, arrive(answer.values)
        given = self._arrival.facts.given
        return APART if self._arrival.lost and len(given) == 1 and len(given[0][0]) > 1 else LEAVE

    def _stop_from_outside(self) -> BaseException | None:
        """What it is to the notebook when somebody ends the cell's process as one ends a program: it was stopped."""
        status = None if self._call is None else self._call.status
        if status not in (-signal.SIGINT, -signal.SIGTERM):
            return None
        return KeyboardInterrupt(f"The cell was stopped from outside: {exit_cause.describe(status)}.")

    def _put(self, values: dict[str, object]) -> None:
        """Put names into the notebook: those of a job amid no other cell."""
        put = functools.partial(self._shell.user_ns.update, values)
        if self._between is None:
            put()
        else:
            self.settle = self._between.do(put)

    def _lost(self, names: Sequence[str], value: object) -> BaseException | None:
        """The error of names that were asked for and are not here; none of what came is lost to it."""
        if not names:
            return None
        error = Unpicklable(
            f"{', '.join(names)} cannot be made again in this notebook, and is gone with the cell's process; all else "
            "has come. What it is made of, such as its module, must be here too.",
            what=", ".join(names),
        )
        if value is None:
            return as_told(error)
        if self._asked.detach:  # whose value only the job can give
            self.sink.write("stderr", f"{error}\n")
            return None
        self._shell.displayhook(value)
        return as_told(error)

    def _wanted(self) -> bool:
        return not self._stopped

    def _tell_of_waiting(self, what: str) -> Callable[[], None]:
        return lambda: self.sink.write("stdout", f"Waits for {what}, which other calls of yours have.\n")

    def _tell_of_warming(self) -> None:
        self.sink.write("stdout", "The first isolated cell waits some seconds for TensorFlow's import.\n")

    def _look_again(self, answer: Answer) -> Snapshot | None:
        """See what its process still holds, if it held anything."""
        before = self._before.processes if self._before is not None else ()
        return look() if answer.facts.uses or any(row.pid == self.pid for row in before) else None

    def _show(self, closing: Summary) -> None:
        """Show it at the end: of a cell, below its value or its error."""
        data, metadata = self._shell.display_formatter.format(closing)
        show = functools.partial(self.sink.show, {"data": data, "metadata": metadata})
        if self._asked.detach:
            show()
        else:
            afterwards(self._shell, show)


def _as_numbered(body: str) -> str:
    """The cell's text with its lines numbered as in the notebook, whose first line is the magic's."""
    return body if body.lstrip().startswith("%%") else f"# %%tf_gpu isolate\n{body}"


def _title(body: str) -> str:
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("#", "import ", "from ", "%"))]
    return next(iter([*telling, *lines]), "")


def _cells(shell: Any) -> dict[str, tuple[int, str]]:
    """The notebook's cells: each one's number and text, by the name that its functions are known by."""
    # IPython's own, and there is no other way to it; IPython 7 has the names without numbers.
    numbers = getattr(shell.compile, "_filename_map", dict.fromkeys(getattr(linecache, "_ipython_cache", ()), 0))
    return {name: (number, "".join(linecache.getlines(name))) for name, number in numbers.items()}
