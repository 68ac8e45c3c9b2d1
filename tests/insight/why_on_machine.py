"""What the tests of `%tf_gpu why` run in processes on the simulated machine: cells that run out of memory, and more."""

from __future__ import annotations

import gc
import re
import sys
import weakref
from types import SimpleNamespace
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from tests.magic.shell import Seen, cells
from tests.slack import SLACK
from tfgpu_magic.frameworks.tensorflow import devices
from tfgpu_magic.insight.why import explaining
from tfgpu_magic.insight.why.explaining import KEPT
from tfgpu_magic.insight.why.explanation import Explanation

FULL = (
    "OOM when allocating tensor with shape[512,1024,1024] and type float on /job:localhost/replica:0/task:0/"
    "device:GPU:0 by allocator GPU_0_bfc"
)
"""What TensorFlow says; to run out of memory for real takes ten seconds."""
RAISES = f"raise tf.errors.ResourceExhaustedError(None, None, {FULL!r})"
AWAKE = "import tensorflow as tf; x = tf.zeros(3)"


def seen(*sources: str) -> tuple[list[Seen], Explanation | None]:
    """Return what people see of cells, and what was explained last."""
    _take_time()
    return cells(*sources), KEPT.last


def followed(*sources: str) -> tuple[list[Seen], Explanation, list[Seen]]:
    """Run cells of which the last fails, and then the last again by the first line that is advised.

    Returns:
        What people see of the cells and of `%tf_gpu why`, what was explained, and what they see of the second time.
    """
    _take_time()
    before = cells(*sources, "%tf_gpu why")
    found = KEPT.last
    assert found is not None, before[-2].text
    line = first_line(before[-1].value)
    again = cells(f"{line}\n{sources[-1]}") if line.startswith("%%") else cells(line, sources[-1])
    return before, found, again


def _take_time() -> None:
    """Let it take longer than it may on a machine that does nothing else: what is found is tested, and not how soon."""
    explaining.LOOK_TIMEOUT, explaining.TRIAL_TIMEOUT = 10.0 * SLACK, 20.0 * SLACK


def first_line(text: str) -> str:
    """Return the first line to paste."""
    found = re.search(r"^  (%.*?)(?:   |$)", text, re.MULTILINE)
    assert found is not None, text
    return found[1]


def lets_go() -> tuple[bool, bool]:
    """Tell whether an object of a failed cell's function is alive while IPython keeps its traceback, and afterwards."""
    shell: Any = InteractiveShell.instance(colors="nocolor")
    function = f"def fail():\n    global ref\n    thing = Thing()\n    ref = weakref.ref(thing)\n    {RAISES}"
    shown = cells(AWAKE, f"import weakref\nclass Thing: pass\n{function}", "fail()", "%tf_gpu why")
    assert "Out of GPU memory" in shown[-2].text
    assert "Out of GPU memory" in shown[-1].text
    ref: weakref.ref[object] = shell.user_ns["ref"]
    kept = ref() is not None
    shell.run_cell("pass")  # the last result is another
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    traceback = shell.InteractiveTB
    traceback.tb = traceback.etype = traceback.value = traceback.evalue = None
    gc.collect()
    return kept, ref() is not None


def interrupted() -> tuple[str, str | None]:
    """Do what ipykernel does at the end of a cell that was interrupted while it awaited: it has no result for it."""
    cells("import tensorflow as tf")
    events = InteractiveShell.instance().events
    with capture_output() as heard:
        events.trigger("pre_run_cell", SimpleNamespace(raw_cell="await later(tf.zeros(3))"))
        InteractiveShell.instance().user_ns["tf"].zeros(3)
        events.trigger("post_run_cell", None)
    return heard.stdout + heard.stderr, devices.since


def with_a_defect(where: str, *sources: str) -> list[Seen]:
    """Run cells where something of ours fails.

    Args:
        where: the module and the name of what fails.
        sources: the cells.
    """
    from importlib import import_module

    module, _, name = where.partition(":")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect of ours")

    _take_time()
    setattr(import_module(module), name, fail)
    return cells(*sources)
