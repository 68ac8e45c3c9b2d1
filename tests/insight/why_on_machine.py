"""What the tests of `%tf_gpu why` run in processes on the simulated machine: cells that run out of memory."""

from __future__ import annotations

import re

from tests.magic.shell import Seen, cells
from tests.slack import SLACK
from tfgpu_magic.insight.why import explaining
from tfgpu_magic.insight.why.explaining import LAST
from tfgpu_magic.insight.why.explanation import Explanation

FULL = (
    "OOM when allocating tensor with shape[512,1024,1024] and type float on /job:localhost/replica:0/task:0/"
    "device:GPU:0 by allocator GPU_0_bfc"
)
"""What TensorFlow says; to run out of memory for real takes ten seconds."""
RAISES = f"raise tf.errors.ResourceExhaustedError(None, None, {FULL!r})"
AWAKE = "import tensorflow as tf; x = tf.zeros(3)"


def take_time() -> None:
    """Let it take longer than it may on a machine that does nothing else: what is found is tested, and not how soon."""
    explaining.LOOK_TIMEOUT, explaining.TRIAL_TIMEOUT = 10.0 * SLACK, 20.0 * SLACK


def seen(*sources: str) -> tuple[list[Seen], Explanation | None]:
    """Return what people see of cells, and what was explained last."""
    take_time()
    return cells(*sources), LAST.explanation


def failed(*sources: str) -> tuple[Seen, Explanation]:
    """Run cells of which the last fails; return what people see of it, and what was explained."""
    shown, found = seen(*sources)
    assert found is not None, shown[-1].text
    return shown[-1], found


def again(source: str) -> Seen:
    """Run a cell by the first line that `%tf_gpu why` advises, and return what people see of it."""
    line = first_line(cells("%tf_gpu why")[0].value)
    if line.startswith("%%"):
        return cells(f"{line}\n{source}")[0]
    return cells(line, source)[1]


def first_line(text: str) -> str:
    """Return the first line to paste."""
    found = re.search(r"^  (%.*?)(?:   |$)", text, re.MULTILINE)
    assert found is not None, text
    return found[1]
