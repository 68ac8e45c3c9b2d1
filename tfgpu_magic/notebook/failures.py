"""Shows below a cell what is known of the error that has ended it: missing memory, or a policy of ours behind it."""

from __future__ import annotations

import linecache
import re
import traceback
from typing import TYPE_CHECKING

from tfgpu_magic.frameworks import import_hook
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground.message import Line, Message, msg
from tfgpu_magic.insight.why import explaining
from tfgpu_magic.machine.see import look
from tfgpu_magic.policy.process_state import DEVICES

if TYPE_CHECKING:
    from types import TracebackType

    from tfgpu_magic.policy.plan import Plan

_SET = re.compile(r"devices cannot be modified after|Cannot set memory growth on|Memory growth cannot differ")
# TensorFlow's; PyTorch's "CUDA error: invalid device ordinal"; Python's, of a list of devices.
_LOGICAL = re.compile(r"(?:satisfy device specification|unknown device).*?device:GPU:(\d+)", re.IGNORECASE | re.DOTALL)
_PHYSICAL = re.compile(r"invalid device (?:ordinal|id)|list index out of range", re.IGNORECASE)
_OF_DEVICES = re.compile(r"devices\(|\bcuda\b")
_NUMBER = re.compile(r"\bcuda:(\d+)|\bdevice\((\d+)\)|\[(\d+)\]")


def show(error: BaseException, number: int | None) -> None:
    """Show it, below the error.

    Args:
        error: the error.
        number: the cell's number.
    """
    explaining.show(error, number)
    plan, text = RUNTIME.current, str(error)
    hides = plan.show or DEVICES in plan.environment
    if RUNTIME.changed_settings():
        return
    if _SET.search(text) and (hides if text.startswith("Visible") else plan.growth is not None):
        why: Message | str | None = f"{RUNTIME.policy_noun} is in force already. Leave this call out."
    elif not hides or not (why := _hidden(plan, error, text)):
        return
    import_hook.warn(f"tfgpu_magic: {why}")


def _hidden(plan: Plan, error: BaseException, text: str) -> Message | None:
    """Return that the policy hides the GPU that an error misses, or None if it does not."""
    shown = len(plan.devices)
    if found := _LOGICAL.search(text):
        shown = sum(max(len(device.limits), 1) for device in plan.devices)
    elif not (_PHYSICAL.search(text) and (found := _NUMBER.search(_line(error.__traceback__)))):
        return None
    seen, asked = {device.gpu.uuid: device.gpu.label for device in plan.devices}, int(found[found.lastindex or 0])
    hidden = [gpu.label for gpu in look().gpus if gpu.uuid not in seen]
    if not shown <= asked < shown + len(hidden):
        return None
    return msg(
        "{policy} is in force: GPU {hidden} is hidden, and GPU {shown} is numbered from 0. Take a lower number; to "
        "have all GPUs, restart and begin with `{line}`.",
        line=Line("visible all"),
        policy=RUNTIME.policy_noun,
        hidden=", ".join(hidden),
        shown=", ".join(seen.values()),
    )


def _line(trace: TracebackType | None) -> str:
    """Return the line that an error comes from, if it has devices or a list of them, otherwise ""."""
    for frame, number in reversed([*traceback.walk_tb(trace)]):
        line, there = linecache.getline(frame.f_code.co_filename, number), {**frame.f_globals, **frame.f_locals}
        lists = [one for name in re.findall(r"\w+(?=\[)", line) if type(one := there.get(name)) is list]
        if _OF_DEVICES.search(line) or any(type(one).__name__.endswith("Device") for some in lists for one in some[:1]):
            return line
    return ""
