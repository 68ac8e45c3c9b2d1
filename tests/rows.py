"""Makes rows of the facts that a test is about, whichever of a row's records has them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from tfgpu_magic.ground.report import GpuUse
from tfgpu_magic.ground.rows import GpuRow, Owner, ProcessRow
from tfgpu_magic.ground.snapshot import Gpu, Process

_OWNER = {field.name for field in fields(Owner)} | {"owner"}
_USE = {field.name for field in fields(GpuUse)} - {"gpu", "limit"}


def gpu_row(index: int = 0, **facts: Any) -> GpuRow:
    """Return the row of a GPU; a policy, figures and the like are what this notebook reports of it."""
    return changed_gpu(GpuRow(gpu=Gpu(index)), **facts)


def changed_gpu(row: GpuRow, **facts: Any) -> GpuRow:
    """Return the row of a GPU with other facts."""
    own = {name: facts.pop(name) for name in _USE & facts.keys()}
    others = facts.pop("others", row.others)
    return GpuRow(gpu=row.gpu._replace(**facts), own=replace(row.own, **own) if own else row.own, others=others)


def process_row(gpu: str = "0", **facts: Any) -> ProcessRow:
    """Return the row of a process."""
    return changed(ProcessRow(process=Process(gpu), owner=Owner(pid=0, who="mine", text="eval.ipynb")), **facts)


def changed(row: ProcessRow, **facts: Any) -> ProcessRow:
    """Return the row of a process with other facts; `owner` is its name."""
    owner = {("text" if name == "owner" else name): facts[name] for name in _OWNER & facts.keys()}
    process = {name: facts[name] for name in Process._fields if name in facts}
    rest = {name: value for name, value in facts.items() if name not in _OWNER and name not in process}
    return replace(row, owner=replace(row.owner, **owner), process=row.process._replace(**process), **rest)
