"""IPython magics that set TensorFlow's GPU memory right before first use, and show which process holds what.

In a notebook: ``%load_ext tfgpu_magic``, then ``%tf_gpu?``. In a script:

    import tfgpu_magic
    tfgpu_magic.apply("limit 2GiB")   # before TensorFlow's first op
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfgpu_magic._version import __version__ as __version__
    from tfgpu_magic.engine.engine import apply, plan
    from tfgpu_magic.engine.status import Status, status
    from tfgpu_magic.errors import PolicyError, Raised, Refused, TfGpuError, TimedOut, TooLate, Unpicklable, WorkerDied
    from tfgpu_magic.ground.snapshot import Snapshot
    from tfgpu_magic.insight.freeing import Freed, free, give_back
    from tfgpu_magic.insight.measuring import measure
    from tfgpu_magic.insight.objects.tensors import Tensors, tensors
    from tfgpu_magic.insight.session import timeline
    from tfgpu_magic.insight.why.explaining import why
    from tfgpu_magic.isolate.executor import IsolatedExecutor, isolated
    from tfgpu_magic.machine.see import look
    from tfgpu_magic.notebook.loading import load_ipython_extension, unload_ipython_extension
    from tfgpu_magic.notebook.widget import MemoryTable
    from tfgpu_magic.policy.plan import Plan

__all__ = [
    "Freed", "IsolatedExecutor", "MemoryTable", "Plan", "PolicyError", "Raised", "Refused", "Snapshot", "Status",
    "Tensors", "TfGpuError", "TimedOut", "TooLate", "Unpicklable", "WorkerDied", "apply", "free", "give_back",
    "isolated", "load_ipython_extension", "look", "measure", "plan", "status", "tensors", "timeline",
    "unload_ipython_extension", "why",
]  # fmt: skip

# The module of each name; nothing is imported before it is used. A kernel that was restarted for a policy is made to
# call `_resume` by `notebook.server_client`.
_HOMES = {
    name: module
    for module, names in {
        "_version": "__version__",
        "engine.engine": "apply plan",
        "engine.status": "Status status",
        "errors": "PolicyError Raised Refused TfGpuError TimedOut TooLate Unpicklable WorkerDied",
        "insight.freeing": "Freed free give_back",
        "insight.measuring": "measure",
        "insight.objects.tensors": "Tensors tensors",
        "insight.session": "timeline",
        "insight.why.explaining": "why",
        "isolate.executor": "IsolatedExecutor isolated",
        "ground.snapshot": "Snapshot",
        "machine.see": "look",
        "notebook.loading": "_resume load_ipython_extension unload_ipython_extension",
        "notebook.widget": "MemoryTable",
        "policy.plan": "Plan",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
