"""Kernels that use GPUs which the driver tells nothing of are shown by their own word."""

from __future__ import annotations

from tests.figures import tensorflow
from tests.sizes import GIB
from tfgpu_magic.monitor.owners import Notebook
from tfgpu_magic.monitor.report import GpuUse, Report
from tfgpu_magic.monitor.rows import Table
from tfgpu_magic.monitor.snapshot import Gpu, Snapshot
from tfgpu_magic.monitor.tabulate import UNREAD, Known, make
from tfgpu_magic.views.status import Status

BROKEN = Snapshot(time=1.0, error="The NVIDIA driver changed under the running system.")


def kernel(pid: int, size: int | None, gpu: str = "GPU-0123abcd-4567") -> Report:
    figures = () if size is None else tensorflow(size)
    return Report(pid=pid, summary="", uses=(GpuUse(gpu=gpu, figures=figures),))


def table(*reports: Report, snapshot: Snapshot = BROKEN, this: Report | None = None) -> Table:
    return make(snapshot, Known(own=this, reports=reports, notebooks={7: Notebook(path="eval.ipynb")}))


def test_kernels_that_use_gpus_are_shown_with_what_the_driver_says_instead() -> None:
    made = table(kernel(7, GIB), kernel(8, 3 * GIB, "GPU-ffffffff-1"), this=kernel(9, 2 * GIB))

    assert [(gpu.gpu, gpu.used, gpu.error) for gpu in made.gpus] == [
        ("GPU-0123abcd", None, UNREAD),
        ("GPU-ffffffff", None, UNREAD),
    ]
    assert [(row.gpu, row.who, row.owner, row.held, row.known) for row in made.processes] == [
        ("GPU-0123abcd", "this", "this notebook", None, 2 * GIB),
        ("GPU-0123abcd", "mine", "eval.ipynb", None, GIB),
        ("GPU-ffffffff", "mine", "a kernel", None, 3 * GIB),
    ]
    assert (made.error, made.notes) == (None, (BROKEN.error,))
    for shown in (repr(Status(made)), Status(made)._repr_html_()):
        assert "eval.ipynb" in shown
        assert "The NVIDIA driver changed" in shown


def test_where_no_kernel_uses_any_the_error_stands_alone() -> None:
    assert table(kernel(7, None)).error == BROKEN.error


def test_where_the_driver_is_read_nothing_changes() -> None:
    read = Snapshot(time=1.0, gpus=(Gpu(index=0, uuid="GPU-0123abcd-4567", used=0),))

    assert [(gpu.gpu, gpu.error) for gpu in table(kernel(7, GIB), snapshot=read).gpus] == [("0", None)]
