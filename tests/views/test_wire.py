"""The page's types of the messages are made of Python's, and what is sent is of these types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scripts import _wire
from tests.figures import pytorch, tensorflow
from tests.rows import changed, changed_gpu
from tests.sizes import GIB
from tests.views.tables import BUSY, process
from tests.views.test_message import live
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.process_kind import RoomWait
from tfgpu_magic.ground.report import GpuUse, Parked
from tfgpu_magic.ground.rows import Notebook
from tfgpu_magic.lab import exporter
from tfgpu_magic.machine.driver.nvml import SENSORS
from tfgpu_magic.tell import page_json

PAGE = Path(__file__).parents[2] / "labextension/src/view"


def test_the_pages_types_are_todays() -> None:
    assert _wire.WIRE.read_text() == _wire.text(), "run: python -m scripts._wire"


def test_every_member_is_sent_where_there_is_something_to_say_and_no_other() -> None:
    use = GpuUse(gpu="0", policy="growth", figures=(*tensorflow(1, 2), *pytorch(1, 2)))
    notebook = Notebook(path="a.ipynb", kernel="k", state="idle", active=1.0, also=("b.ipynb",))
    row = changed(process(8), use=use, notebook=notebook, tone=3, spare=True, call=True, child="python3", silent=True)
    parked = GpuUse(gpu="0", parked=Parked(size=GIB, back=3.2))
    orphan = changed(process(8), pid=9, kernel=9, began=123, utilisation=0, unused=1.0, use=parked)
    rest = changed(process(8, pid=None), waits=RoomWait((), 1.0, 2.0, 3.0, GIB, any_gpu=True))
    gpu = changed_gpu(
        BUSY.gpus[0], uuid="GPU-1", error="lost", mig=True, instance=0, unified=True, limit=GIB, sensors={"power": 61}
    )
    everything = replace(BUSY, gpus=(gpu,), processes=(row, orphan, rest), simulated=True, error="All is lost.")
    state = page_json.state(live(replace(everything, absent=True, notes=("Note.",)), stale=90.0, every=3.0))
    sent = {
        "State": set(state),
        "Gpu": {name for one in state["gpus"].values() for name in one},
        "Row": {name for one in state["rows"].values() for name in one},
    }

    assert sent == {name: {member.name for member in _wire.types()[name]} for name in sent}


def test_every_view_knows_each_sensor_and_the_framework_of_the_policy() -> None:
    table = (PAGE / "gpu.ts").read_text().partition("const SENSORS")[2].partition("\n};")[0]

    assert [name for name in SENSORS if f"\n  {name}: " not in table] == []
    assert set(exporter.SENSORS) == set(SENSORS)
    assert f"const OWN = '{TENSORFLOW}';" in (PAGE / "row.ts").read_text()
