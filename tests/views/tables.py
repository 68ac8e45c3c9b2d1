"""Tables to draw, from the plainest to the most hostile."""

from __future__ import annotations

from dataclasses import replace

from tests.figures import pytorch, tensorflow
from tests.rows import gpu_row, process_row
from tests.sizes import GIB
from tfgpu_magic.ground.report import GpuUse, LogicalGpu
from tfgpu_magic.ground.rows import ProcessRow, Share, Table

HOSTILE = "<img src=x onerror=alert(1)>\u202eevil\n\x1b[31m\ud800&quot;"


def process(held: float | None = 1, *, gpu: str = "0", owner: str = "eval.ipynb", pid: int | None = 7) -> ProcessRow:
    size = None if held is None else int(held * GIB)
    facts = {"pid": pid, "kind": "C"} if pid else {"unlisted": "never"}
    return process_row(gpu, owner=owner, held=size, **facts)


def torch(allocated: float, reserved: float) -> ProcessRow:
    figures = pytorch(int(allocated * GIB), int(reserved * GIB))
    return replace(process(), use=GpuUse(gpu="0", figures=figures))


EMPTY = Table(gpus=(gpu_row(name="A100", used=0, total=16 * GIB, free=16 * GIB),))
BUSY = Table(
    gpus=(
        gpu_row(
            name="A100-80GB",
            logical=(LogicalGpu(name="GPU:0"),),
            used=int(61.2 * GIB),
            total=80 * GIB,
            free=int(18.8 * GIB),
            figures=tensorflow(int(31.2 * GIB), int(44.9 * GIB)),
            policy="limit 48 GiB",
            others=Share(text="others", size=int(13.2 * GIB)),
        ),
        gpu_row(
            1,
            name="A100-80GB",
            used=GIB // 2,
            total=80 * GIB,
            free=79 * GIB,
            policy="hidden",
            others=Share(text="others", size=GIB // 2),
        ),
        gpu_row(2, name="Tesla T4", error="the GPU is lost. Others go on"),
    ),
    processes=(
        process_row(pid=2373, kind="C", who="this", owner="this notebook", held=48 * GIB),
        process(0.01, pid=2533),
        process(None, gpu="1", pid=11),
        process(13, gpu="1", pid=None, owner="others"),
    ),
    summary="TensorFlow is ready.",
)
ABSENT = Table(error="No NVIDIA driver was found.", absent=True, summary="TensorFlow is not imported.")
