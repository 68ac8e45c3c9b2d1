"""A plan as code that does not need tfgpu_magic: Python for a script, or shell lines. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tfgpu_magic.ground.units import MIB
from tfgpu_magic.policy import POLICY
from tfgpu_magic.policy.plan import Plan
from tfgpu_magic.policy.process_state import DEVICES


def python(plan: Plan, order: Sequence[str] = ()) -> str:
    """Return Python that does what the plan does, for the top of a script, before TensorFlow's first op.

    Args:
        plan: what is to be done.
        order: UUIDs of the GPUs that the script will list, where the plan does not decide which those are: in this
            process TensorFlow's visible devices may be only some of them.
    """
    uuids = [str(device.gpu.uuid) for device in plan.devices]
    chosen = bool(uuids) and DEVICES not in plan.variables and set(uuids) < set(order)
    places = [order.index(uuid) for uuid in uuids] if chosen else list(range(len(uuids)))
    lines = [
        f'os.environ["{name}"] = "{value}"' if value is not None else f'os.environ.pop("{name}", None)'
        for name, value in plan.variables.items()
    ]
    lines = ["import os", "", *lines, ""] if lines else []
    if plan.releases:
        lines.insert(0, "import ctypes")
    if not plan.limited and plan.cpus is None and not chosen:
        return "\n".join([*lines, "import tensorflow as tf", *_giving_back(plan)])
    lines += ["import tensorflow as tf", ""]
    if plan.limited or chosen:
        lines.append('gpus = tf.config.list_physical_devices("GPU")')
    if chosen:
        lines.append(f'tf.config.set_visible_devices([{", ".join(f"gpus[{place}]" for place in places)}], "GPU")')
    for place, device in zip(places, plan.devices, strict=True):
        if device.limits:
            parts = [f"tf.config.LogicalDeviceConfiguration(memory_limit={size // MIB})" for size in device.limits]
            lines += _configure(f"gpus[{place}]", parts)
    if plan.cpus is not None:
        lines.append('cpus = tf.config.list_physical_devices("CPU")')
        lines += [f"parts = [tf.config.LogicalDeviceConfiguration()] * {plan.cpus}"]
        lines.append("tf.config.set_logical_device_configuration(cpus[0], parts)")
    return "\n".join([*lines, *_giving_back(plan)])


def _giving_back(plan: Plan) -> list[str]:
    return _GIVE_BACK.splitlines() if plan.releases else []


_GIVE_BACK = '''

def give_back():
    """Give GPU memory that TensorFlow does not use back to the driver; call it after TensorFlow's first op."""
    tf.test.experimental.sync_devices()
    cuda = ctypes.CDLL("libcuda.so.1")
    count, pool = ctypes.c_int(), ctypes.c_void_p()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    for gpu in range(count.value):
        cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), gpu)
        cuda.cuMemPoolTrimTo(pool, ctypes.c_size_t(0))
'''


def _configure(gpu: str, parts: list[str]) -> list[str]:
    lines = ["tf.config.set_logical_device_configuration(", f"    {gpu},"]
    if len(parts) == 1:
        return [*lines, f"    [{parts[0]}],", ")"]
    return [*lines, "    [", *(f"        {part}," for part in parts), "    ],", ")"]


def variables(plan: Plan) -> dict[str, str | None]:
    """Return what a program is started with that is under a plan as far as variables can say it; None removes one."""
    return {**plan.variables, POLICY: str(plan.settled)}


def shell(plan: Plan) -> str:
    """Return shell lines that do what the plan does for programs started after them, as far as variables can."""
    lines = [
        f"export {name}={shlex.quote(value)}" if value is not None else f"unset {name}"
        for name, value in plan.variables.items()
    ]
    if plan.limited or plan.cpus is not None:
        lines += [
            "# TensorFlow has no variable for limits and logical devices.",
            "# Kernels that load tfgpu_magic read this one:",
            f"export {POLICY}='{plan.settled}'",
        ]
    return "\n".join(lines) or "# Nothing was asked: TensorFlow's own defaults need no variable."
