"""Has two of TensorFlow's own calls respect the policy that is in force, from its import until `restore`.

A question for devices makes GPU allocators by the options of its own session, which ignore limits and growth and stay
for good: it gets the options of TensorFlow's context instead. `set_memory_growth`, which most notebooks and programs
begin with, is an error beside a limit, and at the first op where it was called for some of the GPUs: it is accepted.
Sources: TensorFlow 2.16 to 2.21, `client/device_lib.py`, `framework/test_util.py`, `eager/context.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tfgpu_magic.frameworks.tensorflow.devices import context_class, current_stage, tensorflow
from tfgpu_magic.policy.process_state import Stage

asked_by_policy = False
"""Whether TensorFlow's allocators were made by a question that got the options of its context."""

_undo: list[Callable[[], None]] = []


def patch_calls(growth: Callable[[bool | None], bool | None]) -> None:
    """Make the calls respect a policy, if TensorFlow is imported; they are changed once.

    Args:
        growth: returns whether memory grows by the policy in force, or None where none decides that. It is given what
            is asked for, or None by a question for devices.
    """
    if _undo or tensorflow() is None:
        return
    listing: Any = sys.modules["tensorflow.python.client.device_lib"].list_local_devices
    own: Any = context_class()
    set_growth = own.set_memory_growth

    def set_memory_growth(context: Any, dev: Any, enable: bool) -> None:
        """Set if memory growth should be enabled for a PhysicalDevice; while a policy decides that, it stays."""
        __tracebackhide__ = True  # of IPython: the error is TensorFlow's
        wanted = growth(enable) if getattr(dev, "device_type", "") == "GPU" else None
        if wanted is None:
            set_growth(context, dev, enable)
        elif current_stage() is not Stage.READY and not context._virtual_device_map:
            for gpu in context._physical_devices:  # alike on all, as TensorFlow demands
                if gpu.device_type == "GPU":
                    set_growth(context, gpu, wanted)

    def restore_calls() -> None:
        listing.__defaults__ = defaults
        if own.set_memory_growth is set_memory_growth:  # else others have changed it since
            own.set_memory_growth = set_growth

    defaults, listing.__defaults__ = listing.__defaults__, (_ContextOptions(lambda: growth(None) is not None),)
    own.set_memory_growth = set_memory_growth
    _undo.append(restore_calls)


def restore() -> None:
    """Make the calls TensorFlow's own again."""
    while _undo:
        _undo.pop()()


class _ContextOptions:
    """The options for a question that has none of its own, made when it is asked: the argument for them is public."""

    def __init__(self, decides: Callable[[], bool]) -> None:
        self._decides = decides

    def SerializeToString(self) -> bytes:  # noqa: N802  # protobuf's
        """Return the options of TensorFlow's context where a policy decides, else the defaults."""
        global asked_by_policy
        if not self._decides():
            return b""
        asked_by_policy = asked_by_policy or current_stage() in (Stage.IMPORTED, Stage.LISTED)
        options: bytes = sys.modules["tensorflow.python.eager.context"].context().config.SerializeToString()
        return options
