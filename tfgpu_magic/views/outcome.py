"""What `%tf_gpu` answers besides a status: a plan and how it stands, or code; as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from tfgpu_magic.config.fit import Device
from tfgpu_magic.config.plan import Plan, in_words
from tfgpu_magic.units import rounded
from tfgpu_magic.views import html

_HEADS = ("<Device", "<TensorFlow", "<Takes", "<Of")


@dataclass(frozen=True, slots=True, repr=False)
class Outcome:
    """A plan and how it stands; IPython shows it as HTML or as text.

    Attributes:
        plan: what is done, GPU by GPU.
        standing: how it stands, one sentence.
    """

    plan: Plan
    standing: str

    def __repr__(self) -> str:
        rows = _rows(self.plan)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.standing, *(f"  {line}" for line in lines), *self.plan.notes])

    def _repr_html_(self) -> str:
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in _rows(self.plan))
        table = html.grid("Plan", _HEADS, cells) if self.plan.devices or self.plan.cpus else ""
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.plan.notes)
        return html.page(f"<p><strong>{escape(self.standing)}</strong></p>{table}{notes}")


@dataclass(frozen=True, slots=True, repr=False)
class Code:
    """Source text to copy; IPython shows it as it is, for no machine to format."""

    source: str

    def __repr__(self) -> str:
        return self.source

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.source)}</pre>"


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    """A row for each GPU that TensorFlow sees, one for logical CPUs."""
    rows: list[tuple[str, ...]] = []
    number = 0
    for device in plan.devices:
        names = [f"GPU:{number + n}" for n in range(max(len(device.limits), 1))]
        number += len(names)
        rows.append((f"GPU {device.gpu.label}", " ".join(names), _takes(device, plan), _of(device)))
    if plan.cpus is not None:
        rows.append(("CPU", " ".join(f"CPU:{n}" for n in range(plan.cpus)), "logical CPUs", ""))
    return rows


def _takes(device: Device, plan: Plan) -> str:
    return in_words(device.limits, grows=plan.grows)


def _of(device: Device) -> str:
    return f"of {rounded(device.gpu.total)}, {rounded(device.gpu.free)} free"
