"""`%%tf_gpu isolate` in the kernel: sends what the cell reads, brings its outputs back, and shows a summary."""

from __future__ import annotations

import contextlib
import functools
import linecache
import pickle
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from tfgpu_magic.claims import allocation
from tfgpu_magic.engine import engine
from tfgpu_magic.engine.offers import offering
from tfgpu_magic.engine.room import Wait
from tfgpu_magic.errors import NOT_STARTED, PolicyError, Refused, TfGpuError, Unpicklable
from tfgpu_magic.ground.message import FrontEnd, Message, join_commas, join_lines, msg
from tfgpu_magic.ground.process_kind import title
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.isolate import user_code
from tfgpu_magic.isolate.call import APART, LEAVE, CellCall, CellText, Outcome
from tfgpu_magic.isolate.cells.names import global_names, unbound
from tfgpu_magic.isolate.cells.summary import summarise
from tfgpu_magic.isolate.leasing import LEASES, Abandoned, Lease, LeaseRequest
from tfgpu_magic.isolate.process import exit_cause
from tfgpu_magic.isolate.process.interrupt import handling_interrupts, noting_interrupt
from tfgpu_magic.isolate.run import Run
from tfgpu_magic.isolate.sinks import Sink
from tfgpu_magic.isolate.values import pickling, plain
from tfgpu_magic.isolate.values.copies import copy_for_later
from tfgpu_magic.isolate.values.pickling import Pickled
from tfgpu_magic.machine.see import look

_RUNNER = "tfgpu_magic.isolate.process.shell:cell"

_SHELLS_OWN = frozenset({"get_ipython", "exit", "quit", "open"})
"""The names that every shell puts into its namespace for itself. Other names that are hidden from `%who` belong to the
notebook all the same: `_`, `Out`, and those that a startup file defines."""

_NAME = re.compile(r"^((?:\x1b\[[\d;]*m)*)KeyboardInterrupt\b")
"""Where IPython names the exception: at the head of a traceback's first and last part, and of no part with source."""

_TRAITS = ("ast_node_interactivity", "autoawait", "colors")
"""The traits that a cell's shell takes over from the notebook's."""


@dataclass(slots=True)
class Arrival:
    """What has arrived of a cell.

    Attributes:
        values: what was unpickled, by name; the name of the cell's value is empty.
        lost: why a value could not be unpickled, by name.
        rest: the outcome with the parts of those alone, with which it can be tried again.
    """

    values: dict[str, object]
    lost: dict[str, str]
    rest: Outcome


class Cell:
    """A cell to be run once, in a process of its own, with the notebook's names as they are now.

    Args:
        shell: the notebook's IPython.
        call: what its line asks.
        body: its text.
        sink: where its output goes.
        explain: returns what shows why a cell ran out of memory, as `insight.why.explaining.explain_call` does; None
            if it did not.
        defer: what waits for the end of another cell to put its names into the notebook, as `jobs` has it for a job.

    Attributes:
        title: the line of it that tells most.
        sink: where its output goes.
        running: its run.
        bring_names: puts the names that it has brought into the notebook, if that waits for the end of another cell.

    Raises:
        PolicyError: a name to send is not in the notebook; nothing can bind a name to bring back.
        Refused: the policy cannot be enforced here and now.
        Unpicklable: something that it reads cannot be sent.
    """

    def __init__(
        self,
        shell: Any,
        call: CellCall,
        body: str,
        sink: Sink,
        explain: Callable[..., object | None],
        defer: Callable[[Callable[[], None]], Callable[[], None]] | None,
    ) -> None:
        self._shell, self._call, self.sink, self._explain = shell, call, sink, explain
        self.title = title(body)
        self._before: Snapshot | None = None
        source = shell.transform_cell(body)
        seen, cells = global_names(source), _cells(shell)
        texts = [source, *(text for _, text in cells.values())]
        for name in call.outputs:
            if name not in shell.user_ns and (hint := unbound(name, texts)) is not None:
                text = "-o {name}: nothing in this cell or notebook binds {quoted}.{hint}"
                raise PolicyError(msg(text, name=name, quoted=repr(name), hint=hint))
        self._number: int = shell.displayhook.prompt_count  # not execution_count, which newer IPythons raise too early
        inputs = _chosen(shell, seen.reads, call)
        self._sent = frozenset(inputs)
        surely = seen.surely.union(call.inputs or (), call.also)
        pieces, unsent = _pickled(inputs, surely)
        cell_text = CellText(
            source=_as_numbered(body),
            number=self._number,
            outputs=call.outputs,
            sent={name: len(piece.parts) for name, piece in pieces.items()},
            surely=surely,
            unsent=unsent,
            passing=seen.passing,
            shell={name: getattr(shell, name) for name in _TRAITS},
            traceback=shell.InteractiveTB.mode,
            cells=cells,
        )
        if call.detach:  # the notebook goes on, and changes its arrays
            pieces = {name: copy_for_later(piece) for name, piece in pieces.items()}
        self.running = Run(
            call=call,
            work=(memoryview(pickle.dumps(cell_text)), *(part for piece in pieces.values() for part in piece.parts)),
            sink=sink,
            warming=self._announce_warming,
            answered=self._take,
        )
        self._arrival: Arrival | None = None
        self._deferred = defer
        self.bring_names: Callable[[], None] = lambda: None

    def run(self) -> Any:
        """Run it, show how it ended, bring its names into the notebook, and return its value.

        Raises:
            BaseException: what the cell raised; its traceback is the one that the cell's process saw.
        """
        value, error = self._end()
        if error is None:
            return value
        _debug_no_frames(self._shell)
        if isinstance(error, SystemExit):
            raise error from None  # `exit()` in the cell is no error, and IPython 7 cannot show its cause
        raise error

    def _end(self) -> tuple[Any, BaseException | None]:
        """Run it to its end, and return its value, or what is to be raised; no traceback keeps anything else alive."""
        begin = time.monotonic()
        try:
            outcome = self._outcome()
        except (TfGpuError, OSError, KeyboardInterrupt) as error:
            if self.running.pid is not None:
                died = Outcome(seconds=time.monotonic() - begin)
                self._show(summarise(died, None, look(), self.running.pid))
            if isinstance(error, Refused) and not self._call.detach:  # a job's error is its caller's to catch
                if error.retryable:
                    fits = engine.nearest(self._call.policy) if self._call.gpus in (None, 1) else []
                    error.args = (error.reason.with_tries("\nFits now:\n  ", fits).with_wait(self._call.policy),)
                return None, _not_started(error, self._shell, self._call)
            return None, without_frames(self._stop_from_outside() or error.with_traceback(None))
        with user_code.running(), noting_interrupt() as came:
            if self.running.interrupted_late:
                came.append(signal.SIGINT)
            return self._bring(outcome, came)

    def _bring(self, outcome: Outcome, came: Sequence[int]) -> tuple[Any, BaseException | None]:
        """Bring what it has answered into the notebook, and return its value, or what is to be raised."""
        arrival, self._arrival = self._arrival, None
        if not outcome.values:
            return None, _not_started(outcome.error(), self._shell, self._call)
        arrival = arrival or unpickle_each(outcome)
        value, display = arrival.values.pop("", None), outcome.display
        self._put(arrival.values)
        error = _raised(outcome)
        asked = {} if error is not None else outcome.kept  # else what it did not get is told below what it raised
        refused = {name: why for name, why in asked.items() if name in self._call.outputs}
        kept = {name: why for name, why in outcome.kept.items() if name not in refused}
        self._show_summary(replace(outcome, kept=kept), arrival.lost, error)
        error = error or self._lost(arrival, refused, value)
        if error is None and came and not self._call.detach:
            error = without_frames(KeyboardInterrupt("The cell had ended, and what it gives is here."))
            if value is not None and display is not None:
                self._shell.displayhook(value)
        if error is not None or display is None or (value is None and "" not in arrival.lost):
            return None, error
        if "" in arrival.lost:
            self.sink.show({"data": display[0], "metadata": display[1]})
        elif not self._call.detach and display[0].keys() - {"text/plain"}:
            # The text is that of the value that was brought back: an array instead of a tensor.
            _display_once(self._shell, value, display)
        return value, None

    def _show_summary(self, outcome: Outcome, lost: Mapping[str, str], error: BaseException | None) -> None:
        """Show how it ended, and if it ran out of memory, why."""
        before, pid = self._before, self.running.pid
        held_some = before is not None and any(row.pid == pid for row in before.processes)
        after = look() if outcome.uses or held_some else None
        hint = _hint(error, self._shell.user_ns.keys() - self._sent)
        self._show(summarise(outcome, before, after, pid, lost, hint))
        if error is None or before is None:
            return
        number = None if self._call.detach else self._number
        with contextlib.suppress(Exception):  # the error itself is what must be seen
            if (why := self._explain(error, outcome.pools, before, pid=pid, number=number)) is not None:
                self._show(why)

    def _outcome(self) -> Outcome:
        with contextlib.suppress(Abandoned):
            return self.running.run(self._lease(), _RUNNER)
        raise KeyboardInterrupt("The cell was stopped before it began.")

    def _lease(self) -> contextlib.AbstractContextManager[Lease]:
        """Return a lease of GPUs of its own if a number is asked for; else of what its policy takes of those it sees.

        Unless it waits for room, only the policy of its own line counts here: the notebook's policy also holds in cells
        that never use a GPU.
        """
        policy, gpus, limit = self._call.policy, self._call.gpus, self._call.wait
        if gpus is None and limit is None and not any(request.limited for request in policy.memory):
            inherited = engine.inherited().then(policy)
            return contextlib.nullcontext(Lease(inherited, look() if inherited.requests else None))
        what = allocation.gpu_count(gpus) if gpus else "GPU memory"
        waiting = msg("Waits for {what}, which other calls of yours have.", what=what)
        wait = Wait(limit, self._say, job=True) if self._call.detach else Wait(limit, any_gpu=bool(gpus))
        return LEASES.lease(LeaseRequest(policy, gpus, lambda: not self.running.stopped, waiting, wait, not gpus))

    def _take(self, outcome: Outcome) -> str:
        """Take what the cell returns while its process still has it; ask for pieces if it cannot be had as a whole.

        While the notebook is parked nothing is unpickled, and pieces are asked for: one that cannot be made takes no
        other along.
        """
        if self._before is None:
            self._before = look()
        if not outcome.values:
            return LEAVE
        self._arrival = None
        with user_code.at_once() as may:
            if may:
                self._arrival = unpickle_each(outcome)
        whole = self._arrival is not None and not self._arrival.lost
        in_one_piece = len(outcome.given) == 1 and len(outcome.given[0][0]) > 1  # it could also be had one by one
        return LEAVE if whole or not in_one_piece else APART

    def _stop_from_outside(self) -> BaseException | None:
        """Return a `KeyboardInterrupt` if SIGINT or SIGTERM from outside has ended the cell's process."""
        status = self.running.status
        if status not in (-signal.SIGINT, -signal.SIGTERM):
            return None
        how = exit_cause.describe(status)
        return KeyboardInterrupt(str(msg("The cell was stopped from outside: {how}.", how=how)))

    def _put(self, values: dict[str, object]) -> None:
        """Put names into the notebook; those of a job not while another cell runs."""
        if self._deferred is None:
            self._shell.user_ns.update(values)
            return

        def put() -> None:
            self._shell.user_ns.update(values)
            if values:
                self._say(msg("Now in the notebook: {names}.", names=join_commas(values)))

        self.bring_names = self._deferred(put)

    def _lost(self, arrival: Arrival, refused: Mapping[str, Message], value: object) -> BaseException | None:
        """Return the error of names that were asked for and are not here; what was brought back is kept.

        Args:
            arrival: what has arrived.
            refused: why names were not brought back, if that is the cell's error.
            value: the cell's value, if it has arrived.
        """
        names = join_commas(filter(None, arrival.lost))
        told = [msg("{name} stays in its process: {why}", name=name, why=why) for name, why in refused.items()]
        if not names.facts:
            return self._refused(arrival, refused, told, value) if told else None
        if value is not None and self._call.detach:  # only the job can return its value
            gone = msg("{names} cannot be made again in this notebook, and is gone with the job.", names=names)
            self._say(join_lines((gone, *told)), "stderr")
            return None
        if value is not None:
            self._shell.displayhook(value)
        text = (
            "{names} cannot be made again in this notebook; all else has come. Once it can be, as when its module can "
            "be imported, value() of this error brings it: import sys; sys.last_value.value()"
        )
        error = Unpicklable(join_lines((msg(text, names=names), *told)), what=str(names))
        error.value = functools.partial(self._again, arrival.rest)
        return without_frames(error)

    def _refused(
        self, arrival: Arrival, refused: Mapping[str, Message], told: Sequence[Message], value: object
    ) -> BaseException:
        old = [name for name in refused if name in self._shell.user_ns and name not in arrival.values]
        verb = "is" if len(old) == 1 else "are"
        mine = msg("The notebook's own {names} {verb} as before.", names=join_commas(old), verb=verb) if old else None
        error = Unpicklable(join_lines((*told, "All else has come.", mine)), what=", ".join(refused))
        if self._call.detach:
            error.value = lambda: value
        elif value is not None:
            self._shell.displayhook(value)
        return without_frames(error)

    def _again(self, rest: Outcome) -> dict[str, object]:
        """Bring what could not be made before, and return it by name."""
        arrival = unpickle_each(rest)
        arrival.values.pop("", None)  # the cell's own value, whose text has been shown
        self._put(arrival.values)
        error = self._lost(arrival, {}, None)
        if error is not None:
            raise error
        return arrival.values

    def _say(self, message: Message, stream: str = "stdout") -> None:
        self.sink.write(stream, f"{message}\n")

    def _announce_warming(self) -> None:
        self._say(msg("The first isolated cell waits some seconds for TensorFlow's import."))

    def _show(self, summary: object) -> None:
        """Show a summary at the end: of a cell, below its value or its error."""
        data, metadata = self._shell.display_formatter.format(summary)
        show = functools.partial(self.sink.show, {"data": data, "metadata": metadata})
        if self._call.detach:
            show()
        else:
            _afterwards(self._shell, show)


def _chosen(shell: Any, reads: frozenset[str], call: CellCall) -> dict[str, object]:
    """Return the names to send, with their values.

    Args:
        shell: the notebook's IPython.
        reads: the names that the cell reads.
        call: what its line asks.

    Raises:
        PolicyError: a name to send is not in the notebook.
    """
    there, hidden = shell.user_ns, shell.user_ns_hidden
    named = (*(call.inputs or ()), *call.also)
    for name in named:
        if name not in there:
            raise PolicyError(msg("-i {name}: this notebook has no {quoted}.", name=name, quoted=repr(name)))
    if call.inputs is not None:
        return {name: there[name] for name in named}
    own = {name for name in _SHELLS_OWN & there.keys() if there[name] is hidden.get(name)}
    return {name: there[name] for name in sorted((reads & (there.keys() - own)) | set(named))}


def _pickled(inputs: Mapping[str, object], surely: frozenset[str]) -> tuple[dict[str, Pickled], dict[str, Message]]:
    """Pickle the names, so that what two of them share stays shared.

    Args:
        inputs: the names, with their values.
        surely: those that the cell cannot do without.

    Returns:
        The pickles, and why others could not be sent, by name.

    Raises:
        Unpicklable: something that the cell cannot do without cannot be sent; the message names all such.
    """
    pieces, errors = pickling.dump_each(inputs, reduce=plain.reduce_for_call)
    if refused := {name: error for name, error in errors.items() if name in surely}:
        text = join_lines((*(error.message for error in refused.values()), pickling.ADVICE))
        raise Unpicklable(text, what=", ".join(refused))
    return pieces, {name: error.message for name, error in errors.items()}


def _as_numbered(body: str) -> str:
    """Return the text below a magic with its lines numbered as in the notebook, where the first line is the magic's."""
    return body if body.lstrip().startswith("%%") else f"# %%tf_gpu isolate\n{body}"


def _cells(shell: Any) -> dict[str, tuple[int, str]]:
    """Return the notebook's cells: the number and the text of each, by the file name that its functions have."""
    # Private to IPython, which has no public function for it; IPython 7 has the names without numbers.
    numbers = getattr(shell.compile, "_filename_map", dict.fromkeys(getattr(linecache, "_ipython_cache", ()), 0))
    return {name: (number, "".join(linecache.getlines(name))) for name, number in numbers.items()}


def unpickle_each(outcome: Outcome) -> Arrival:
    """Unpickle what a cell returns: each pickle by itself, with all that is in it."""
    values, lost = dict[str, object](), dict[str, str]()
    given, rest, start = [], list[memoryview](), 0
    for brought, count in outcome.given:
        pickled = outcome.values[start : start + count]
        start += count
        try:
            with handling_interrupts(signal.default_int_handler):  # else Ctrl-C would go to the call, which is over
                try:
                    values |= pickling.load(pickled, pickling.GuardedUnpickler)
                except KeyboardInterrupt:  # the next one is meant for what is made: it may hang
                    values |= pickling.load(pickled, pickling.GuardedUnpickler)
        except (Exception, KeyboardInterrupt) as error:  # a module that is not here; an object's own __setstate__
            lost |= dict.fromkeys(brought, str(error) or type(error).__name__)
            given.append((brought, count))
            rest += pickled
    return Arrival(values, lost, replace(outcome, given=tuple(given), values=rest))


def _not_started(error: BaseException | None, shell: Any, call: CellCall) -> BaseException:
    """Return the error of a cell that was not run: there is no GPU for it, or its process could not be set up.

    Args:
        error: why; None if that is unknown.
        shell: the notebook's IPython.
        call: what the line above it asks.
    """
    if error is None or isinstance(error, TfGpuError):
        if isinstance(error, Refused):
            error.verdict = NOT_STARTED
        own = engine.current().asked
        here = own.without(request for request in own if request not in own.then(call.policy))
        text = "The notebook's own `{here}` holds for its isolated cells too, unless they say another policy."
        origin = msg(text, here=here)
        message = join_lines((None if error is None else error.message, origin if here.requests else None))
        return offering(shell, message, "", FrontEnd(above=call.above))
    return without_frames(error)


def _raised(outcome: Outcome) -> BaseException | None:
    """Return what the cell raised, or that it was late; IPython will show the traceback of the cell's process."""
    error, shown = outcome.error(), outcome.traceback
    if isinstance(error, SyntaxError):  # of which IPython does not use `_render_traceback_`
        error.__cause__ = None
    if error is not None and outcome.late is not None:
        # It was stopped as by Ctrl-C, but the user did not press that.
        shown = (*(_NAME.sub(r"\1TimedOut", part) for part in shown), f"{type(error).__name__}: {error}")
    return None if error is None else _shown_as(error, shown)


def without_frames(error: BaseException) -> BaseException:
    """Make IPython show an error as its name and message only, without a frame of ours."""
    return _shown_as(error, [f"{type(error).__name__}: {error}"])


def _shown_as(error: BaseException, lines: Sequence[str]) -> BaseException:
    """Make IPython show these lines for an exception, by its hook for exceptions of other processes."""
    if lines:
        error._render_traceback_ = _ShownLines(lines)  # type: ignore[attr-defined]
    return error


class _ShownLines(tuple[str, ...]):
    """The lines that are shown for an exception; they mark for `%debug` that there are no frames."""

    __slots__ = ()

    def __call__(self) -> list[str]:
        return list(self)


def _debug_no_frames(shell: Any) -> None:
    """Make `%debug` and `%pdb` report that such an exception's frames are gone, instead of entering ours."""

    def debug(force: bool = False) -> None:
        if not isinstance(getattr(getattr(sys, "last_value", None), "_render_traceback_", None), _ShownLines):
            vars(shell).pop("debugger", None)
            shell.debugger(force=force)
        elif force or shell.call_pdb:
            print("Nothing to debug: the cell's frames are gone with its process. A plain cell's are here.")

    shell.debugger = debug


def _hint(error: BaseException | None, there: Set[str]) -> str | None:
    """Return a name that the notebook has and the cell did not find, as its text does not show that it reads it."""
    if not isinstance(error, NameError | KeyError):
        return None
    return next((name for name in re.findall(r"['\"`]([^\W\d]\w*)['\"`]", str(error)) if name in there), None)


def _afterwards(shell: Any, action: Callable[[], None]) -> None:
    """Do an action when the running cell is over, and has shown its value or its error."""

    def once() -> None:
        shell.events.unregister("post_execute", once)
        action()

    shell.events.register("post_execute", once)


def _display_once(shell: Any, value: object, shown: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
    """Make IPython display a value as the cell's process did, which can do more: show a figure's picture.

    It applies to the display at the end of this cell only: by the next cell the value may have changed.
    """
    hook = shell.displayhook

    def forget() -> None:
        hook.__dict__.pop("compute_format_data", None)

    def compute(result: object) -> Any:
        forget()
        return shown if result is value else hook.compute_format_data(result)

    hook.compute_format_data = compute
    _afterwards(shell, forget)
