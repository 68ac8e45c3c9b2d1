"""A kernel's answers to JupyterLab's chooser of a policy (`labextension/src/lab/choose`): facts as JSON.

The page evaluates these functions in the kernel as `user_expressions` of a silent request, through the notebook's own
connection. The sentences among the facts are shown, and nothing follows from their wording.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tfgpu_magic.engine import enforcement, engine
from tfgpu_magic.errors import PolicyError, Refused, TfGpuError, TooLate
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.frameworks.self_report import after_exit
from tfgpu_magic.ground.process_kind import magics, shell
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.machine.see import DRIVER_TIMEOUT, is_still_asked, look
from tfgpu_magic.notebook import configuration
from tfgpu_magic.policy import refusal
from tfgpu_magic.policy.decide import Frameworks
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.policy import NOTHING
from tfgpu_magic.policy.process_state import ProcessState
from tfgpu_magic.policy.promises import available
from tfgpu_magic.tell.page_json import note

MIME = "application/vnd.tfgpu-magic.answer+json"
"""The type of an answer, which no front end shows."""

LOOK = 2.0
"""Seconds for which one question keeps the kernel, while the driver is slow: the user's cells run in between. It goes
on being asked, and a later question gets what it said."""


@dataclass(frozen=True, slots=True)
class ChooserAnswer:
    """Facts for the chooser, which IPython sends as JSON."""

    facts: Mapping[str, Any]

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {MIME: self.facts}


def state(words: str = "") -> ChooserAnswer:
    """Return what can be chosen in this kernel: its GPUs, the policy that counts, and whether it is too late.

    What this kernel holds counts as free if only a restart can apply a policy.

    Args:
        words: a policy; if it is not empty, `plan` is what it would do, here or after a restart.
    """
    shown = snapshot = look(LOOK)
    late = ""
    process = RUNTIME.observe(snapshot.gpus)
    if process.fixed:
        late = str(refusal.too_late(NOTHING, process).reason.without_next)
        shown = after_exit(snapshot)
    asked = engine.current().asked
    facts: dict[str, object] = {
        "now": time.monotonic(),
        "late": late,
        "policy": str(asked),
        "ceiling": str(RUNTIME.ceiling or ""),
        "chooses": asked.choice is not None,
        "gpus": [_gpu(gpu, process) for gpu in shown.gpus if not gpu.mig],
        "error": snapshot.error or "",
        "asking": not snapshot.gpus and is_still_asked(),
    }
    if words and snapshot.gpus:
        facts["plan"] = planned = _plan(words, lambda: snapshot)
        facts["late"] = late or planned.get("late", "")
    return ChooserAnswer(facts)


def _plan(words: str, see: Callable[[], Snapshot]) -> Mapping[str, object]:
    """Return what words would do here, or if it is too late, in a kernel that starts anew."""
    try:
        try:
            return {"outcome": "fits", **_describe(engine.plan(words, frameworks=_frameworks(words), see=see))}
        except TooLate as error:
            then = engine.foresee(words, _frameworks(words), see=see)
            return {"outcome": "late", "late": str(error.reason.without_next), **_describe(then)}
    except TfGpuError as error:
        return _describe_refusal(error)


def apply(words: str, before: float) -> ChooserAnswer:
    """Apply a policy as a line of the magic would, in a kernel in which the extension is loaded first if it is not.

    Args:
        words: the policy.
        before: the time by this kernel's monotonic clock from which on nothing is done: a request that waited behind
            a cell would surprise its user.
    """
    if time.monotonic() > before:
        return ChooserAnswer({"outcome": "expired"})
    return _apply(lambda: engine.apply(words, frameworks=_frameworks(words), see=_see))


def _frameworks(words: str) -> Frameworks:
    """Return for which frameworks words are: for all, unless TensorFlow alone can be asked them."""
    return "all" if configuration.magic_for(words) == "gpu" else "tensorflow"


def resume(words: str, others: str) -> ChooserAnswer:
    """Apply the words of a plan in the kernel that was restarted for it.

    Args:
        words: the policy for TensorFlow.
        others: that for the other frameworks; empty if nothing is asked of them.
    """
    return _apply(lambda: configuration.resume(words, others, see=_see))


_see = partial(look, DRIVER_TIMEOUT)
"""A snapshot without a message about a slow driver: its answer is waited for."""


def _apply(do: Callable[[], Plan]) -> ChooserAnswer:
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):  # a silent request shows no output
        loads = magics(shell()) is None
        if loads:
            shell().run_line_magic("load_ext", "tfgpu_magic")
        answer: Mapping[str, object]
        try:
            made = do()
        except TooLate:
            answer = {"outcome": "overtaken"}
        except TfGpuError as error:
            answer = _describe_refusal(error)
        else:
            answer = {"outcome": "applied", "standing": engine.standing(made), **_describe(made)}
    reporter = magics(shell()).reporter
    if loads:
        reporter.note_idle()  # this runs in no cell
    reporter.announce()  # it is news for tables
    return ChooserAnswer({**answer, "loads": loads, "said": heard.getvalue().strip()})


def _gpu(gpu: Gpu, process: ProcessState) -> dict[str, object]:
    """Return a GPU's facts. Unknown ones are absent."""
    facts = {"label": gpu.label, "name": gpu.name, "free": gpu.free, "total": gpu.capacity, "error": gpu.error}
    facts["fits"] = None if gpu.free is None else max(available(process.promises, gpu), 0)
    if RUNTIME.ceiling is not None and gpu.capacity is not None:
        facts["most"] = RUNTIME.ceiling.bytes(gpu) if RUNTIME.ceiling.amounts else 0
    return {name: value for name, value in facts.items() if value is not None}


def _describe(plan: Plan) -> dict[str, object]:
    """Return a plan's facts: the whole policy and what the other frameworks have, what each GPU gives, and notes."""
    return {
        "policy": str(plan.asked) or "default",
        "others": str(enforcement.said_to_others(plan)),
        "takes": [{"gpu": device.gpu.label, "takes": plan.takes(device)} for device in plan.devices],
        "notes": [note(one) for one in plan.notes],
    }


def _describe_refusal(error: TfGpuError) -> Mapping[str, object]:
    """Return the facts of a refusal: why, and the policies to ask for instead."""
    reason = error.beginning if isinstance(error, Refused) else error
    outcome = "wrong" if isinstance(error, PolicyError) else "refused"
    ways = [line.words for line in error.message.tries if not line.waits]  # the dialog is not open for so long
    return {"outcome": outcome, "reason": str(reason), "ways": ways}
