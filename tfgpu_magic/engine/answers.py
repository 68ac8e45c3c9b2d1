"""The answer of `%tf_gpu` with a policy: a plan and its status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.model import phrases
from tfgpu_magic.model.answer import Document, grid, headline
from tfgpu_magic.units import rounded

if TYPE_CHECKING:
    from tfgpu_magic.policy.plan import Plan

_HEADS = (">Device", "<TensorFlow", "<Takes", ">Of", ">Free now")


def answer(plan: Plan, standing: str) -> Document:
    """Return a plan as an answer.

    Args:
        plan: the plan, GPU by GPU.
        standing: its status, one sentence.
    """
    simulated = [phrases.SIMULATED] if any(device.gpu.simulated for device in plan.devices) else []
    return Document(headline(standing), grid(_HEADS, _rows(plan), indent=" "), *plan.notes, *simulated)


def foreseen(plan: Plan, policy: str, *, of_all: bool, lead: str = "") -> Document:
    """Return what is shown of a plan that is not to be applied.

    Args:
        plan: the plan.
        policy: the words that it was made for.
        of_all: whether they are for every framework, or for TensorFlow.
        lead: what is said before.
    """
    words = plan.asked_of_all if of_all else plan.asked
    return answer(plan, f"{lead}`{str(words) or policy}` would do this:")


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
