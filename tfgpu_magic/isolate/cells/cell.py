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
from dataclasses import dataclass, field, replace
from typing import Any

from tfgpu_magic.engine import engine
from tfgpu_magic.engine.offers import offering
from tfgpu_magic.errors import PolicyError, TfGpuError, Unpicklable
from tfgpu_magic.ground.host import title
from tfgpu_magic.ground.message import FrontEnd, in_lines
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.isolate import user_code
from tfgpu_magic.isolate.call import Call, CallAnswer
from tfgpu_magic.isolate.cells.names import names, unbound
from tfgpu_magic.isolate.cells.summary import summarise
from tfgpu_magic.isolate.leasing import LEASES, Abandoned, Lease, LeaseRequest, LeaseRequestForAll
from tfgpu_magic.isolate.process import exit_cause
from tfgpu_magic.isolate.process.interrupt import handled, noted
from tfgpu_magic.isolate.process.order import APART, LEAVE, CellFacts, CellSettings
from tfgpu_magic.isolate.run import Options, run
from tfgpu_magic.isolate.sinks import Sink
from tfgpu_magic.isolate.values import pickling, plain
from tfgpu_magic.isolate.values.copies import copied
from tfgpu_magic.isolate.values.pickling import Pickled
from tfgpu_magic.leases import allocation
from tfgpu_magic.machine.see import look

_RUNNER = "tfgpu_magic.isolate.process.shell:cell"

_SHELLS_OWN = frozenset({"get_ipython", "exit", "quit", "open"})
"""The names that every shell puts into its namespace for itself. Other names that are hidden from `%who` belong to the
notebook all the same: `_`, `Out`, and those that a startup file defines."""

_NAME = re.compile(r"^((?:\x1b\[[\d;]*m)*)KeyboardInterrupt\b")
"""Where IPython names the exception: at the head of a traceback's first and last part, and of no part with source."""

_TRAITS = ("ast_node_interactivity", "autoawait", "colors")
"""The traits that a cell's shell takes over from the notebook's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLine:
    """What the line of an isolated cell asks.

    Attributes:
        inputs: the names to send; None for those that the cell reads.
        also: further names to send.
        outputs: the names to bring back.
        options: the options that any call has; the number of GPUs is None by default.
        detach: whether the notebook goes on meanwhile.
        flags: the flags as they were written.
    """

    inputs: tuple[str, ...] | None = None
    also: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)
    detach: bool = False
    flags: str = field(default="", compare=False)

    @property
    def above(self) -> str:
        """The line above the cell, without its policy."""
        return f"%%{'gpu' if self.options.frameworks == 'all' else 'tf_gpu'} isolate{self.flags}"


@dataclass(slots=True)
class Arrival:
    """What has arrived of a cell.

    Attributes:
        facts: the facts that its process reports.
        values: what was unpickled, by name; the name of the cell's value is empty.
        lost: why a value could not be unpickled, by name.
        refused: why what was to be brought back is not there, by name, if that is the cell's error.
        rest: the parts of what could not be unpickled, its facts first, with which it can be tried again.
    """

    facts: CellFacts
    values: dict[str, object] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    rest: Sequence[memoryview] = ()


class Cell:
    """A cell to be run once, in a process of its own, with the notebook's names as they are now.

    Args:
        shell: the notebook's IPython.
        line: what its line asks.
        body: its text.
        sink: where its output goes.
        explain: returns what shows why a cell ran out of memory, as `insight.why.explaining.explain_call` has it; None
            where it did not.
        defer: what waits for the end of another cell to put its names into the notebook, as `jobs` has it for a job.

    Attributes:
        title: its first line that is no import or comment.
        sink: where its output goes.
        settle: puts the names that it has brought into the notebook, if that waits for the end of another cell.

    Raises:
        PolicyError: a name to send is not in the notebook; nothing can bind a name to bring back.
        Refused: the policy cannot be enforced here and now.
        Unpicklable: something that it reads cannot be sent.
    """

    def __init__(
        self,
        shell: Any,
        line: CellLine,
        body: str,
        sink: Sink,
        explain: Callable[..., object | None],
        defer: Callable[[Callable[[], None]], Callable[[], None]] | None,
    ) -> None:
        self._shell, self._line, self.sink, self._explain = shell, line, sink, explain
        self.title = title(body)
        self._before: Snapshot | None = None
        source = shell.transform_cell(body)
        seen, cells = names(source), _cells(shell)
        texts = [source, *(text for _, text in cells.values())]
        for name in line.outputs:
            if name not in shell.user_ns and (hint := unbound(name, texts)) is not None:
                raise PolicyError(f"-o {name}: nothing in this cell or notebook binds {name!r}.{hint}")
        self._number: int = shell.displayhook.prompt_count  # not execution_count, which newer IPythons raise too early
        inputs = _chosen(shell, seen.reads, line)
        self._sent = frozenset(inputs)
        surely = seen.surely.union(line.inputs or (), line.also)
        pieces, unsent = _pickled(inputs, surely)
        settings = CellSettings(
            source=_as_numbered(body),
            number=self._number,
            outputs=line.outputs,
            sent={name: len(piece.parts) for name, piece in pieces.items()},
            surely=surely,
            unsent=unsent,
            passing=seen.passing,
            shell={name: getattr(shell, name) for name in _TRAITS},
            traceback=shell.InteractiveTB.mode,
            cells=cells,
        )
        if line.detach:  # the notebook goes on, and changes its arrays
            pieces = {name: copied(piece) for name, piece in pieces.items()}
        self.call = Call(
            work=(memoryview(pickle.dumps(settings)), *(part for piece in pieces.values() for part in piece.parts)),
            timeout=line.options.timeout,
            sink=sink,
            warming=self._announce_warming,
            answered=self._take,
        )
        self._arrival: Arrival | None = None
        self._deferred = defer
        self.settle: Callable[[], None] = lambda: None

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
            answer = self._answer()
        except (TfGpuError, OSError, KeyboardInterrupt) as error:
            if self.call.pid is not None:
                self._show(summarise((), None, look(), self.call.pid, time.monotonic() - begin))
            return None, without_frames(self._stop_from_outside() or error.with_traceback(None))
        with user_code.running(), noted() as came:
            if self.call.interrupted_late:
                came.append(signal.SIGINT)
            return self._bring(answer, came)

    def _bring(self, answer: CallAnswer, came: Sequence[int]) -> tuple[Any, BaseException | None]:
        """Bring what it has answered into the notebook, and return its value, or what is to be raised."""
        arrival, self._arrival = self._arrival, None
        if not answer.values:
            return None, _not_run(answer, self._shell, self._line.above)
        arrival = arrival or arrive(answer.values)
        facts, value = arrival.facts, arrival.values.pop("", None)
        self._put(arrival.values)
        final = _raised(answer)
        if final is None:  # else what it asked for and did not get is told below what it raised
            arrival.refused = {name: why for name, why in facts.kept.items() if name in self._line.outputs}
            kept = {name: why for name, why in facts.kept.items() if name not in arrival.refused}
            arrival.facts = replace(facts, kept=kept)
        self._show_summary(answer, arrival, final)
        final = final or self._lost(arrival, value)
        if final is None and came and not self._line.detach:
            final = without_frames(KeyboardInterrupt("The cell had ended, and what it gives is here."))
            if value is not None and facts.shown is not None:
                self._shell.displayhook(value)
        if final is not None or facts.shown is None or (value is None and "" not in arrival.lost):
            return None, final
        if "" in arrival.lost:
            self.sink.show({"data": facts.shown[0], "metadata": facts.shown[1]})
        elif not self._line.detach and facts.shown[0].keys() - {"text/plain"}:
            # The text is that of the value that was brought back: an array instead of a tensor.
            _display_once(self._shell, value, facts.shown)
        return value, None

    def _show_summary(self, answer: CallAnswer, arrival: Arrival, error: BaseException | None) -> None:
        """Show how it ended."""
        uses, before = answer.facts.uses, self._before.processes if self._before is not None else ()
        summary = summarise(
            uses,
            self._before,
            look() if uses or any(row.pid == self.call.pid for row in before) else None,
            self.call.pid,
            answer.seconds,
            arrival.facts,
            failed=answer.failed,
            lost=arrival.lost,
            hint=_hint(error, self._shell.user_ns.keys() - self._sent),
        )
        self._show(summary)
        if error is not None and self._before is not None and (why := self._why(error, answer, self._before)):
            self._show(why)

    def _why(self, error: BaseException, answer: CallAnswer, then: Snapshot) -> object | None:
        """Return why it ran out of memory; None where that cannot be found out."""
        number = None if self._line.detach else self._number
        with contextlib.suppress(Exception):  # its own error is what must be seen
            return self._explain(error, answer.facts.pools, then, pid=self.call.pid, number=number)
        return None

    def _answer(self) -> CallAnswer:
        with contextlib.suppress(Abandoned):
            return run(self.call, self._lease(), _RUNNER, for_all=self._line.options.for_all)
        raise KeyboardInterrupt("The cell was stopped before it began.")

    def _lease(self) -> contextlib.AbstractContextManager[Lease]:
        """Return a lease of GPUs of its own if a number is asked for; else of what its policy takes of those it sees.

        Only the policy of its own line counts here: the notebook's policy also holds in cells that never use a GPU.
        """
        options = self._line.options
        if options.gpus is None and not any(request.limited for request in options.policy.memory):
            policy = engine.inherited().then(options.policy)
            return contextlib.nullcontext(Lease(policy, look() if policy.requests else None))
        kind = LeaseRequest if options.gpus else LeaseRequestForAll
        what = allocation.gpus(options.gpus) if options.gpus else "GPU memory"

        def announce() -> None:
            self.sink.write("stdout", f"Waits for {what}, which other calls of yours have.\n")

        return LEASES.lease(kind(options.policy, options.gpus, lambda: not self.call.stopped, announce))

    def _take(self, answer: CallAnswer) -> str:
        """Take what the cell returns while its process still has it; ask for pieces if it cannot be had as a whole.

        While the notebook is parked nothing is unpickled, and pieces are asked for: one that cannot be made takes no
        other along.
        """
        if self._before is None:
            self._before = look()
        if not answer.values:
            return LEAVE
        self._arrival = None
        with user_code.at_once() as may:
            if may:
                self._arrival = arrive(answer.values)
        whole = self._arrival is not None and not self._arrival.lost
        return LEAVE if whole or not _in_one_piece(answer.values) else APART

    def _stop_from_outside(self) -> BaseException | None:
        """Return a `KeyboardInterrupt` if SIGINT or SIGTERM from outside has ended the cell's process."""
        status = self.call.status
        if status not in (-signal.SIGINT, -signal.SIGTERM):
            return None
        return KeyboardInterrupt(f"The cell was stopped from outside: {exit_cause.describe(status)}.")

    def _put(self, values: dict[str, object]) -> None:
        """Put names into the notebook; those of a job not while another cell runs."""
        if self._deferred is None:
            self._shell.user_ns.update(values)
            return

        def put() -> None:
            self._shell.user_ns.update(values)
            if values:
                self.sink.write("stdout", f"Now in the notebook: {', '.join(values)}.\n")

        self.settle = self._deferred(put)

    def _lost(self, arrival: Arrival, value: object) -> BaseException | None:
        """Return the error of names that were asked for and are not here; what was brought back is kept."""
        names = ", ".join(filter(None, arrival.lost))
        told = "\n".join(f"{name} stays in its process: {why}" for name, why in arrival.refused.items())
        if not names:
            return self._refused(arrival, told, value) if told else None
        if value is not None and self._line.detach:  # only the job can return its value
            self.sink.write(
                "stderr", f"{names} cannot be made again in this notebook, and is gone with the job.\n{told}"
            )
            return None
        if value is not None:
            self._shell.displayhook(value)
        error = Unpicklable(
            f"{names} cannot be made again in this notebook; all else has come. Once it can be, as when its module can "
            f"be imported, value() of this error brings it: import sys; sys.last_value.value()\n{told}".rstrip(),
            what=names,
        )
        error.value = functools.partial(self._again, arrival.rest)
        return without_frames(error)

    def _refused(self, arrival: Arrival, told: str, value: object) -> BaseException:
        old = [name for name in arrival.refused if name in self._shell.user_ns and name not in arrival.values]
        mine = f"\nThe notebook's own {', '.join(old)} {'is' if len(old) == 1 else 'are'} as before." if old else ""
        error = Unpicklable(f"{told}\nAll else has come.{mine}", what=", ".join(arrival.refused))
        if self._line.detach:
            error.value = lambda: value
        elif value is not None:
            self._shell.displayhook(value)
        return without_frames(error)

    def _again(self, parts: Sequence[memoryview]) -> dict[str, object]:
        """Bring what could not be made before, and return it by name."""
        arrival = arrive(parts)
        arrival.values.pop("", None)  # the cell's own value, whose text has been shown
        self._put(arrival.values)
        error = self._lost(arrival, None)
        if error is not None:
            raise error
        return arrival.values

    def _announce_warming(self) -> None:
        self.sink.write("stdout", "The first isolated cell waits some seconds for TensorFlow's import.\n")

    def _show(self, summary: object) -> None:
        """Show a summary at the end: of a cell, below its value or its error."""
        data, metadata = self._shell.display_formatter.format(summary)
        show = functools.partial(self.sink.show, {"data": data, "metadata": metadata})
        if self._line.detach:
            show()
        else:
            _afterwards(self._shell, show)


def _chosen(shell: Any, reads: frozenset[str], line: CellLine) -> dict[str, object]:
    """Return the names to send, with their values.

    Args:
        shell: the notebook's IPython.
        reads: the names that the cell reads.
        line: what its line asks.

    Raises:
        PolicyError: a name to send is not in the notebook.
    """
    there, hidden = shell.user_ns, shell.user_ns_hidden
    named = (*(line.inputs or ()), *line.also)
    for name in named:
        if name not in there:
            raise PolicyError(f"-i {name}: this notebook has no {name!r}.")
    if line.inputs is not None:
        return {name: there[name] for name in named}
    own = {name for name in _SHELLS_OWN & there.keys() if there[name] is hidden.get(name)}
    return {name: there[name] for name in sorted((reads & (there.keys() - own)) | set(named))}


def _pickled(inputs: Mapping[str, object], surely: frozenset[str]) -> tuple[dict[str, Pickled], dict[str, str]]:
    """Pickle the names, so that what two of them share stays shared.

    Args:
        inputs: the names, with their values.
        surely: those that the cell cannot do without.

    Returns:
        The pickles, and why others could not be sent, by name.

    Raises:
        Unpicklable: something that the cell cannot do without cannot be sent; the message names all such.
    """
    unsent, pieces = dict[str, str](), None
    while pieces is None:  # once more without each that fails: what it shares with others is in its pickle
        try:
            sent = {name: value for name, value in inputs.items() if name not in unsent}
            pieces = pickling.dump_each(sent, reduce=plain.there)
        except Unpicklable as error:
            unsent[error.what] = str(error)
    if refused := [name for name in unsent if name in surely]:
        text = "\n".join([*(unsent[name] for name in refused), pickling.ADVICE])
        raise Unpicklable(text, what=", ".join(refused))
    return pieces, unsent


def _as_numbered(body: str) -> str:
    """Return the text below a magic with its lines numbered as in the notebook, where the first line is the magic's."""
    return body if body.lstrip().startswith("%%") else f"# %%tf_gpu isolate\n{body}"


def _cells(shell: Any) -> dict[str, tuple[int, str]]:
    """Return the notebook's cells: the number and the text of each, by the file name that its functions have."""
    # Private to IPython, which has no public function for it; IPython 7 has the names without numbers.
    numbers = getattr(shell.compile, "_filename_map", dict.fromkeys(getattr(linecache, "_ipython_cache", ()), 0))
    return {name: (number, "".join(linecache.getlines(name))) for name, number in numbers.items()}


def _in_one_piece(parts: Sequence[memoryview]) -> bool:
    """Tell whether several values are in one pickle, so that they could also be had one by one."""
    facts: CellFacts = pickle.loads(parts[0])  # noqa: S301  # from our own process
    return len(facts.given) == 1 and len(facts.given[0][0]) > 1


def arrive(parts: Sequence[memoryview]) -> Arrival:
    """Unpickle what a cell returns: each pickle by itself, with all that is in it.

    Args:
        parts: the parts of what it returns, its facts first.
    """
    facts: CellFacts = pickle.loads(parts[0])  # noqa: S301  # from our own process
    arrival, at = Arrival(facts), 1
    given, rest = [], list[memoryview]()
    for brought, count in facts.given:
        pickled = parts[at : at + count]
        try:
            with handled(signal.default_int_handler):  # else Ctrl-C would go to the call, which is over
                try:
                    arrival.values |= pickling.load(pickled, pickling.GuardedUnpickler)
                except KeyboardInterrupt:  # the next one is meant for what is made: it may hang
                    arrival.values |= pickling.load(pickled, pickling.GuardedUnpickler)
        except (Exception, KeyboardInterrupt) as error:  # a module that is not here; an object's own __setstate__
            arrival.lost |= dict.fromkeys(brought, str(error) or type(error).__name__)
            given.append((brought, count))
            rest += pickled
        at += count
    arrival.rest = (memoryview(pickle.dumps(replace(facts, given=tuple(given)))), *rest)
    return arrival


def _not_run(answer: CallAnswer, shell: Any, above: str) -> BaseException:
    """Return why the cell was not run: its process could not be set up, or an interrupt came before.

    Args:
        answer: what its process said.
        shell: the notebook's IPython.
        above: the line above the cell, without its policy.
    """
    error = answer.error()
    if error is None or isinstance(error, TfGpuError):
        here = engine.current().asked
        origin = f"The notebook's own `{here}` holds for its isolated cells too, unless they say another policy."
        message = in_lines((None if error is None else error.message, origin if here.requests else None))
        return offering(shell, message, "", FrontEnd(above=above))
    return without_frames(error)


def _raised(answer: CallAnswer) -> BaseException | None:
    """Return what the cell raised, or that it was late; IPython will show the traceback of the cell's process."""
    error, shown = answer.error(), answer.shown
    if isinstance(error, SyntaxError):  # of which IPython does not use `_render_traceback_`
        error.__cause__ = None
    if error is not None and answer.late is not None:
        # It was stopped as by Ctrl-C, but the user did not press that.
        shown = (*(_NAME.sub(r"\1TimedOut", part) for part in shown), f"{type(error).__name__}: {error}")
    return None if error is None else _shown_as(error, shown)


def without_frames(error: BaseException) -> BaseException:
    """Have IPython show an error as its name and message only, without a frame of ours."""
    return _shown_as(error, [f"{type(error).__name__}: {error}"])


def _shown_as(error: BaseException, lines: Sequence[str]) -> BaseException:
    """Have IPython show these lines for an exception, by its hook for exceptions of other processes."""
    if lines:
        error._render_traceback_ = _ShownLines(lines)  # type: ignore[attr-defined]
    return error


class _ShownLines(tuple[str, ...]):
    """The lines that are shown for an exception; they mark for `%debug` that there are no frames."""

    __slots__ = ()

    def __call__(self) -> list[str]:
        return list(self)


def _debug_no_frames(shell: Any) -> None:
    """Have `%debug` and `%pdb` report that such an exception's frames are gone, instead of entering ours."""

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
    """Have IPython display a value as the cell's process did, which can do more: show a figure's picture.

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
