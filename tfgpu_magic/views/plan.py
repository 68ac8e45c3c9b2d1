"""The result of `%tf_gpu` with a policy: a plan and its status, as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass

from tfgpu_magic.config.plan import Plan
from tfgpu_magic.units import rounded
from tfgpu_magic.views import phrases

_HEADS = (">Device", "<TensorFlow", "<Takes", ">Of", ">Free now")


@dataclass(frozen=True, slots=True, repr=False)
class PlanAnswer:
    """A plan and its status; IPython shows it as HTML or as text.

    Attributes:
        plan: the plan, GPU by GPU.
        standing: its status, one sentence.
    """

    plan: Plan
    standing: str

    def __repr__(self) -> str:
        rows = _rows(self.plan)
        if rows:
            rows.insert(0, tuple(head[1:] for head in _HEADS))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(_fill, _HEADS, row, widths)).rstrip() for row in rows]
        return "\n".join([self.standing, *(f"  {line}" for line in lines), *_remarks(self.plan)])

    def _repr_html_(self) -> str:
        from tfgpu_magic.views import html  # speed of a first `%tf_gpu` line: a terminal draws none

        rows = _rows(self.plan)
        cells = ("".join(map(html.cell, _HEADS, row)) for row in rows)
        table = html.grid("", _HEADS, cells) if rows else ""
        remarks = "".join(map(html.remark, _remarks(self.plan)))
        return html.page(f"<p><strong>{html.prose(self.standing)}</strong></p>{table}{remarks}")


def foreseen(plan: Plan, policy: str, *, of_all: bool, lead: str = "") -> PlanAnswer:
    """Return what is shown of a plan that is not to be applied.

    Args:
        plan: the plan.
        policy: the words that it was made for.
        of_all: whether they are for every framework, or for TensorFlow.
        lead: what is said before.
    """
    words = plan.asked_of_all if of_all else plan.asked
    return PlanAnswer(plan, f"{lead}`{str(words) or policy}` would do this:")


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return a row for each GPU that TensorFlow sees, and one for logical CPUs."""
    rows: list[tuple[str, ...]] = []
    number = 0
    for device in plan.devices:
        names = [f"GPU:{number + n}" for n in range(max(len(device.limits), 1))]
        number += len(names)
        gpu = device.gpu
        rows.append((f"GPU {gpu.label}", " ".join(names), plan.takes(device), rounded(gpu.total), rounded(gpu.free)))
    if plan.cpus is not None:
        rows.append(("CPU", " ".join(f"CPU:{n}" for n in range(plan.cpus)), "logical CPUs", "", ""))
    return rows


def _remarks(plan: Plan) -> tuple[str, ...]:
    simulated = any(device.gpu.simulated for device in plan.devices)
    return (*plan.notes, phrases.SIMULATED) if simulated else plan.notes


def _fill(head: str, cell: str, width: int) -> str:
    return cell.rjust(width) if head.startswith(">") else cell.ljust(width)
