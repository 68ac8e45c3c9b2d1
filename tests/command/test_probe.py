"""`tfgpu probe`: what Kubeflow is told of the notebooks beside it, and that it is told nothing that is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sizes import GIB
from tfgpu_magic.command.probe import activity
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.rows import GpuRow, Parked, ProcessRow, Table

EIGHT = 1.8e9  # in the morning of 2027-01-15
SEVEN = EIGHT - 3600
KERNEL = {"execution_state": "idle", "last_activity": "2027-01-15T07:00:00.123456Z"}
ROW = ProcessRow(gpu="0", pid=7, kind="C", who="mine", owner="a.ipynb", held=5 * GIB, utilisation=0, unused=EIGHT)
USES = replace(ROW, unused=None, utilisation=30)
PARKED = replace(ROW, unused=None, held=0, parked=Parked(state="parked", size=GIB, since=EIGHT))
AT_EIGHT, AT_SEVEN = ({"last_activity": f"2027-01-15T0{hour}:00:00Z"} for hour in (8, 7))


def told(*rows: ProcessRow, since: float = EIGHT, kernels: Any = (KERNEL,), **more: Any) -> dict[str, object]:
    table = Table(time=EIGHT, gpus=(GpuRow(gpu="0", name="A100"),), processes=rows)
    return activity(replace(table, **more), list(kernels), since)


@pytest.mark.parametrize(
    ("rows", "since", "answer"),
    [
        ((), SEVEN, {"has_activity": True} | AT_SEVEN),
        ((), SEVEN + 1, {"has_activity": False} | AT_SEVEN),
        ((ROW,), EIGHT, {"has_activity": True} | AT_EIGHT),
        ((ROW, replace(ROW, unused=SEVEN)), EIGHT + 1, {"has_activity": False} | AT_EIGHT),
        ((USES,), EIGHT, {"has_activity": True}),
        ((ROW, USES), EIGHT + 9e9, {"has_activity": True}),
        ((PARKED,), SEVEN + 1, {"has_activity": False} | AT_SEVEN),
        ((replace(USES, who="other"),), SEVEN + 1, {"has_activity": False} | AT_SEVEN),
    ],
)
def test_the_last_use_of_a_kernel_or_a_gpu_is_activity(
    rows: tuple[ProcessRow, ...], since: float, answer: dict[str, object]
) -> None:
    assert told(*rows, since=since) == answer


def test_a_busy_kernel_is_activity_whatever_is_known_of_gpus() -> None:
    busy = {**KERNEL, "execution_state": "busy"}

    assert told(kernels=[KERNEL, busy], error="no driver", time=0.0) == {"has_activity": True}


@pytest.mark.parametrize(
    ("rows", "more", "why"),
    [
        ((replace(ROW, unused=None),), {}, "is not known yet"),
        ((ROW,), {"error": "The driver does not answer."}, "does not answer"),
        ((ROW,), {"stale_since": SEVEN}, "no fresh figures"),
        ((ROW,), {"kernels": ()}, "no Jupyter server"),
    ],
)
def test_what_is_not_known_is_not_told(rows: tuple[ProcessRow, ...], more: dict[str, Any], why: str) -> None:
    with pytest.raises(MonitorError, match=why):
        told(*rows, **more)
