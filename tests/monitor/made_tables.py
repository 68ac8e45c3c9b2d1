"""Tables of one GPU, made from what each process holds and from what kernels report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.figures import pytorch, tensorflow
from tests.sizes import GIB
from tfgpu_magic.monitor.owners import Notebook, Owner
from tfgpu_magic.monitor.report import Figure, GpuUse, LogicalGpu, Report
from tfgpu_magic.monitor.rows import Table
from tfgpu_magic.monitor.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.tabulate import Known, make

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgpu_magic.monitor.owners import Who

RESERVED = 2
"""Bytes that every other kernel's PyTorch has taken besides."""

OWNERS: dict[int, tuple[Who, str]] = {
    1: ("this", "this notebook"),
    2: ("mine", "eval.ipynb"),
    3: ("other", "maria"),
    4: ("gone", "a process that ended"),
    9: ("unknown", "others"),
}


def table(
    *held: tuple[int, int | None],
    used: int | None = 10 * GIB,
    report: Report | None = None,
    reports: Sequence[Report] = (),
    **gpu: object,
) -> Table:
    """Make the table of one GPU of 16 GiB from (pid, held) pairs; the pid tells the owner."""
    known = {"total": 16 * GIB, "used": used, "free": None if used is None else 16 * GIB - used} | gpu
    snapshot = Snapshot(
        time=100.0,
        listed_at=90.0,  # lists are not read each time
        gpus=(Gpu(index=0, **known),),  # type: ignore[arg-type]
        processes=tuple(Process(gpu="0", pid=pid, kind="C", held=size) for pid, size in held),
    )
    owners = {pid: Owner(pid=pid, who=who, text=text) for pid, (who, text) in OWNERS.items()}
    notebooks = {one.pid: Notebook(path=one.notebook) for one in reports if one.notebook}
    return make(snapshot, Known(owners=owners, own=report, reports=reports, notebooks=notebooks))


def kernel(*figures: Figure, gpu: str = "0", policy: str = "growth", pid: int = 1) -> Report:
    use = GpuUse(gpu=gpu, policy=policy, logical=(LogicalGpu(name="GPU:0"),), figures=figures)
    return Report(pid=pid, summary="Ready.", uses=(use,), notes=("Note.",))


def other(
    in_use: int = 3, *, pid: int = 2, gpu: str = "0", used_since: float | None = None, notebook: str = ""
) -> Report:
    use = GpuUse(gpu=gpu, policy="growth", figures=(*tensorflow(in_use, 5), *pytorch(1, RESERVED)))
    return Report(pid=pid, summary="", uses=(use,), notebook=notebook, used_since=used_since)


def owners_of(made: Table) -> list[str]:
    return [row.owner for row in made.processes]
