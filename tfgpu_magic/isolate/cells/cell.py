"""`%%tf_gpu isolate`, in the kernel: what the cell reads goes along, its outputs come back, and the end is told."""

from __future__ import annotations

import contextlib
import linecache
import pickle
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from tfgpu_magic import control
from tfgpu_magic.config.policy import Limit, Split
from tfgpu_magic.errors import PolicyError, TfGpuError, Unpicklable
from tfgpu_magic.isolate import leases, prepare
from tfgpu_magic.isolate.call import Answer, Call, timed_out
from tfgpu_magic.isolate.cells.closing import Closing, close, crowd
from tfgpu_magic.isolate.cells.names import names
from tfgpu_magic.isolate.cells.shell import CellFacts, CellSettings
from tfgpu_magic.isolate.cells.words import Asked
from tfgpu_magic.isolate.ledger import LEDGER, Abandoned, Lease
from tfgpu_magic.isolate.screen import Screen
from tfgpu_magic.isolate.values import failure, pickling
from tfgpu_magic.isolate.values.failure import Failure
from tfgpu_magic.isolate.values.guard import Unpickler
from tfgpu_magic.isolate.values.pickling import Pickled
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.snapshot import Snapshot

_TRAITS = ("ast_node_interactivity", "autoawait", "colors")
"""What a cell's shell has of the notebook's."""

_SHELLS_OWN = frozenset({"get_ipython", "exit", "quit", "open"})
"""What every shell puts into its namespace for itself. Others that are hidden from `%who` are the notebook's all the
same: `_`, `Out`, and whatever a startup file defines."""


class Cell:
    """A cell to be run once, in a process of its own, with the notebook's names as they are now.

    Args:
        shell: the notebook's IPython.
        asked: what its line asks.
        body: its text.
        screen: where its output goes.

    Attributes:
        title: its first line that says more than an import does.
        screen: where its output goes.

    Raises:
        PolicyError: a name to send is not in the notebook.
        Refused: the policy cannot be enforced here and now.
        Unpicklable: something that it reads cannot be sent.
    """

    def __init__(self, shell: Any, asked: Asked, body: str, screen: Screen) -> None:
        self._shell, self._asked, self.screen = shell, asked, screen
        self.title = _title(body)
        self._before: Snapshot | None = None
        seen = names(shell.transform_cell(body))
        settings = CellSettings(
            source=_as_numbered(body),
            number=shell.displayhook.prompt_count,  # not execution_count, which newer IPythons raise too early
            outputs=asked.outputs,
            imports=seen.imports,
            shell={name: getattr(shell, name) for name in _TRAITS},
            traceback=shell.InteractiveTB.mode,
            cells=_cells(shell),
        )
        self._settings = settings
        work = _pickle(self._inputs(seen.reads))
        self._work = work.copied() if asked.detach else work  # the notebook goes on, and changes its arrays
        self._call: Call | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """Its process, once it has one."""
        return None if self._call is None else self._call.pid

    def stop(self) -> None:
        """Interrupt it, from any thread; where it has not begun, as it waits for GPUs, it does not."""
        self._stopped = True
        if self._call is not None:
            self._call.interrupt()
        LEDGER.stir()

    def run(self) -> Any:
        """Run it, show how it ended, bring its names into the notebook, and return its value.

        Raises:
            BaseException: what the cell raised; its traceback is the one that the cell's process saw.
        """
        begin = time.monotonic()
        try:
            answer = self._answer()
        except (TfGpuError, OSError, KeyboardInterrupt) as error:
            if self.pid is not None:
                self._show(close((), None, look(), self.pid, time.monotonic() - begin))
            raise _shown_as(error, _story(error)) from None
        facts = answer.facts.more.get("cell")
        if not isinstance(facts, CellFacts):
            raise _not_run(answer)
        value = self._bring(answer.parts[: facts.values])
        self._show(close(answer.facts.uses, self._before, self._look_again(answer), self.pid, answer.seconds, facts))
        raised = _raised(answer, facts)
        if raised is not None:
            if re.search(r"out.of.memory|OOM", str(raised), re.IGNORECASE) and self._before is not None:
                self._show(crowd(answer.facts.uses, self._before, self.pid, control.names(self._before)))
            raise raised
        if facts.shown is None or value is None:
            return None
        if facts.shown[0].keys() - {"text/plain"}:  # the text is that of what came home: an array, and no tensor
            _display_once(self._shell.displayhook, value, facts.shown)
        return value

    def _answer(self) -> Answer:
        with contextlib.suppress(Abandoned), self._lease() as lease:
            self._call = Call(
                order=prepare.order(
                    lease.policy,
                    lease.snapshot,
                    runner="tfgpu_magic.isolate.cells.shell:cell",
                    lingers=True,
                    settings={"cell": self._settings},
                ),
                work=self._work,
                timeout=self._asked.timeout,
                screen=self.screen,
                started=lease.started,
                warming=self._tell_of_warming,
                answered=self._look,
            )
            if not self._stopped:  # else there was no call yet that could be interrupted
                return self._call.run()
        raise KeyboardInterrupt("The cell was stopped before it began.")

    def _lease(self) -> contextlib.AbstractContextManager[Lease]:
        """GPUs of its own where a number of them is asked; else those that the notebook sees, and what it takes there.

        What its own words take, that is: the notebook's policy holds in cells, too, that never use a GPU.
        """
        if self._asked.gpus is not None:
            waiting = self._tell_of_waiting(leases.gpus(self._asked.gpus))
            return LEDGER.lease(self._asked.policy, self._asked.gpus, wanted=self._wanted, waiting=waiting)
        if any(isinstance(request, Limit | Split) for request in self._asked.policy):
            return LEDGER.share(self._asked.policy, wanted=self._wanted, waiting=self._tell_of_waiting("GPU memory"))
        policy = control.current().settled.then(self._asked.policy)
        return contextlib.nullcontext(Lease(policy, look() if policy.requests else None))

    def _bring(self, parts: Sequence[memoryview]) -> object:
        """Bring the names into the notebook, and return the cell's value."""
        try:
            values = pickling.load(parts, Unpickler)
        except Exception as error:  # a module that only the cell's process has; somebody's own __setstate__
            told = f"What the cell gives back cannot be made again in this kernel ({error}).\n"
            self.screen.write("stderr", told)
            return None
        value = values.pop("", None)
        self._shell.user_ns.update(values)
        return value

    def _inputs(self, reads: frozenset[str]) -> dict[str, object]:
        """The names to send."""
        there, hidden = self._shell.user_ns, self._shell.user_ns_hidden
        if self._asked.inputs is None:
            own = {name for name in _SHELLS_OWN & there.keys() if there[name] is hidden.get(name)}
            return {name: there[name] for name in sorted(reads & (there.keys() - own))}
        for name in self._asked.inputs:
            if name not in there:
                raise PolicyError(f"-i {name}: this notebook has no {name!r}.")
        return {name: there[name] for name in self._asked.inputs}

    def _wanted(self) -> bool:
        return not self._stopped

    def _tell_of_waiting(self, what: str) -> Callable[[], None]:
        return lambda: self.screen.write("stdout", f"Waits for {what}, which other calls of yours have.\n")

    def _tell_of_warming(self) -> None:
        self.screen.write("stdout", "The first isolated cell waits some seconds for TensorFlow's import.\n")

    def _look(self, _: int) -> None:
        """See what the cell's process holds, while it still does."""
        self._before = look()

    def _look_again(self, answer: Answer) -> Snapshot | None:
        """See what its process still holds, if it held anything."""
        before = self._before.processes if self._before is not None else ()
        return look() if answer.facts.uses or any(row.pid == self.pid for row in before) else None

    def _show(self, closing: Closing) -> None:
        data, metadata = self._shell.display_formatter.format(closing)
        self.screen.show({"data": data, "metadata": metadata})


def _as_numbered(body: str) -> str:
    """The cell's text with its lines numbered as in the notebook, whose first line is the magic's."""
    return body if body.lstrip().startswith("%%") else f"# %%tf_gpu isolate\n{body}"


def _title(body: str) -> str:
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("#", "import ", "from ", "%"))]
    return next(iter([*telling, *lines]), "")


def _cells(shell: Any) -> dict[str, tuple[int, str]]:
    """The notebook's cells: each one's number and text, by the name that its functions are known by."""
    numbers = getattr(shell.compile, "_filename_map", {})  # IPython's own, and there is no other way to it
    return {name: (number, "".join(linecache.getlines(name))) for name, number in numbers.items()}


def _display_once(hook: Any, value: object, shown: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
    """Have IPython display a value as the cell's process did, which knows more of how: of a figure, its picture."""

    def compute(result: object) -> Any:
        hook.__dict__.pop("compute_format_data", None)
        return shown if result is value else hook.compute_format_data(result)

    hook.compute_format_data = compute


def _pickle(inputs: Mapping[str, object]) -> Pickled:
    """Pickle the names together, so that what two of them share they still do."""
    try:
        return pickling.dump(dict(inputs))
    except Unpicklable:
        found = [trouble for name, value in inputs.items() if (trouble := _trouble(name, value))]
        raise Unpicklable("\n".join([*found, "Make it in the cell, or name with -i what to send."])) from None


def _trouble(name: str, value: object) -> str:
    try:
        pickling.dump(value, name)
    except Unpicklable as error:
        return str(error)
    return ""


def _not_run(answer: Answer) -> BaseException:
    """Why the cell was not run: its process could not be set up, or an interrupt came before."""
    error = answer.error()
    if error is None or isinstance(error, TfGpuError):
        here = control.current().asked
        whose = f"\nThe notebook's own `{here}` holds for its isolated cells too, unless they say another policy."
        told = str(error).replace("\n  %tf_gpu ", "\n  %%tf_gpu isolate ")
        return UsageError(f"{told}{whose if here.requests else ''}")
    return _shown_as(error, _story(error))


def _raised(answer: Answer, facts: CellFacts) -> BaseException | None:
    """What the cell raised, or that it was late, which IPython will show with what the cell's process saw."""
    parts = answer.parts[facts.values :]
    error: BaseException | None = None
    shown: tuple[str, ...] = ()
    if parts:
        told: Failure = pickle.loads(parts[0])  # noqa: S301  # from our own process
        error, shown = failure.revive(told, parts[1:]), told.shown
        if isinstance(error, SyntaxError):  # IPython asks none how it wants to be shown
            error.__cause__ = None
    if answer.late is not None:
        error = timed_out(answer.late)
        # It was stopped as by Ctrl-C, and nobody pressed that.
        shown = (*(line.replace("KeyboardInterrupt", "TimedOut") for line in shown), *_story(error))
    return None if error is None else _shown_as(error, shown)


def _story(error: BaseException) -> list[str]:
    """How an end without an answer is told: what happened, and no frame of ours."""
    return [f"{type(error).__name__}: {error}"]


def _shown_as(error: BaseException, lines: Sequence[str]) -> BaseException:
    """Have IPython show these lines for an exception: its own hook for those of other processes."""
    if lines:
        error._render_traceback_ = lambda: list(lines)  # type: ignore[attr-defined]
    return error
