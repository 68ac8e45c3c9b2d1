"""A kernel's answers to JupyterLab's chooser of a policy (`labextension/src/lab/choose`): facts as JSON.

The page evaluates these functions in the kernel as `user_expressions` of a silent request, through the notebook's own
connection. The sentences among the facts are shown, and nothing follows from their wording.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfgpu_magic import control
from tfgpu_magic.administrator import look_well
from tfgpu_magic.config import refusal
from tfgpu_magic.config.flags import RESTART
from tfgpu_magic.config.plan import Plan, in_words
from tfgpu_magic.config.policy import NOTHING
from tfgpu_magic.config.runtime import RUNTIME, current_stage
from tfgpu_magic.config.self_report import after_exit
from tfgpu_magic.errors import PolicyError, Refused, TfGpuError, TooLate
from tfgpu_magic.host import shell
from tfgpu_magic.monitor.snapshot import Gpu

MIME = "application/vnd.tfgpu-magic.answer+json"
"""The type of an answer; no front end shows it."""

_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Answer:
    """Facts for the chooser, which IPython sends as JSON."""

    facts: Mapping[str, Any]

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {MIME: dict(self.facts)}


def state() -> Answer:
    """Return what can be chosen in this kernel: its GPUs, the policy that counts, and whether it is too late.

    What this kernel holds counts as free where only a restart can apply a policy.
    """
    snapshot = look_well()
    late = ""
    try:
        refusal.if_too_late(NOTHING, RUNTIME.observe(snapshot.gpus))
    except TooLate as error:
        late = error.reason
        snapshot = after_exit(snapshot)
    asked = control.current().asked
    return Answer(
        {
            "now": time.monotonic(),
            "loaded": _loaded(),
            "late": late,
            "policy": str(asked),
            "chooses": asked.choice is not None,
            "gpus": [_gpu(gpu) for gpu in snapshot.gpus if not gpu.mig],
            "error": snapshot.error or "",
        }
    )


def plan(words: str) -> Answer:
    """Return what words would do here; or, where it is too late, in a kernel that starts anew."""
    try:
        return Answer({"outcome": "fits", **_planned(control.plan(words))})
    except TooLate as late:
        try:
            return Answer({"outcome": "late", "reason": late.reason, **_planned(control.foresee(words))})
        except TfGpuError as error:
            return _refused(error)
    except TfGpuError as error:
        return _refused(error)


def apply(words: str, before: float) -> Answer:
    """Apply a policy as a line of the magic would, in a kernel in which the extension is loaded first if it is not.

    Args:
        words: the policy.
        before: the time by this kernel's monotonic clock from which on nothing is done: a request that waited behind
            a cell would surprise its user.
    """
    if time.monotonic() > before:
        return Answer({"outcome": "expired"})
    return _apply(words)


def resume(words: str) -> Answer:
    """Apply a whole policy in a kernel that was restarted for it; that of the configuration is not added to it."""
    return _apply(words if words == _DEFAULT else f"{_DEFAULT}; {words}")


def _apply(words: str) -> Answer:
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):  # a silent request shows no output
        loads = not _loaded()
        if loads:
            shell().run_line_magic("load_ext", "tfgpu_magic")
        answer: dict[str, object]
        try:
            made = control.apply(words)
        except TooLate as error:
            answer = {"outcome": "late", "reason": error.reason}
        except TfGpuError as error:
            answer = dict(_refused(error).facts)
        else:
            answer = {"outcome": "applied", "standing": control.standing(made, current_stage()), **_planned(made)}
    shell().magics_manager.registry["TfGpuMagics"].reporter.note_idle()  # this runs in no cell, and is news for tables
    return Answer({**answer, "loads": loads, "said": heard.getvalue().strip()})


def _loaded() -> bool:
    """Tell whether the magics are registered with this kernel's shell."""
    return "TfGpuMagics" in shell().magics_manager.registry


def _gpu(gpu: Gpu) -> dict[str, object]:
    """Return a GPU's facts; unknown ones are absent."""
    facts = {"label": gpu.label, "name": gpu.name, "free": gpu.free, "total": gpu.total, "error": gpu.error}
    return {name: value for name, value in facts.items() if value is not None}


def _planned(plan: Plan) -> dict[str, object]:
    """Return a plan's facts: the whole policy, what each GPU gives, and notes for people."""
    takes = [{"gpu": device.gpu.label, "takes": in_words(device.limits, grows=plan.grows)} for device in plan.devices]
    return {"policy": str(plan.asked) or _DEFAULT, "takes": takes, "notes": list(plan.notes)}


def _refused(error: TfGpuError) -> Answer:
    """Return the facts of a refusal: why, and the policies to ask for instead."""
    ways: Sequence[str] = error.ways if isinstance(error, Refused) else ()
    reason = f"{error.reason}{error.more}" if isinstance(error, Refused) else str(error)
    outcome = "wrong" if isinstance(error, PolicyError) else "refused"
    return Answer({"outcome": outcome, "reason": reason, "ways": [way.removesuffix(f" {RESTART}") for way in ways]})
