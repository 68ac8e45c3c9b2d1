"""The one JSON form of a snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import GIB
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot

st.register_type_strategy(float, st.floats(0, 2**40))


@given(st.from_type(Snapshot))
def test_json_gives_back_what_was_written_in_one_line(snapshot: Snapshot) -> None:
    text = snapshot.to_json()

    assert "\n" not in text
    assert Snapshot.from_json(text) == snapshot


KNOWN = Snapshot(
    time=1e9,
    driver="615.71",
    gpus=(
        Gpu(0, None, "GPU-0", "NVIDIA A100", 80 * GIB, 3 * GIB, 77 * GIB, None, (8, 0), 108, {"utilisation": 7}),
        Gpu(1, 2, "MIG-1", listed=False, lost=True, error="it fell off the bus"),
    ),
    processes=(
        Process("0", 10, "C", 2 * GIB, 60, uid=1000, began=77, cgroup="unit:user-1000.slice"),
        Process("0", 11, "C", GIB, 0, uid=1001, began=78, unused=999999000.0),
        Process("0", 12, "G", None),
    ),
    notes=("a",),
    listed_at=999999999.0,
)


@pytest.mark.parametrize("name", ["1", "later"])
def test_messages_of_other_versions_are_read_for_ever(name: str) -> None:
    """What the first version wrote, and what a later one may write that has added to everything."""
    text = (Path(__file__).parent / "messages" / f"{name}.json").read_text()

    assert Snapshot.from_json(text) == KNOWN


def test_what_a_version_does_not_write_has_its_default() -> None:
    text = (Path(__file__).parent / "messages" / "earlier.json").read_text()
    gpus = tuple(gpu._replace(lost=False, sensors={}) for gpu in KNOWN.gpus)
    rows = tuple(row._replace(utilisation=None, uid=None, unused=None, cgroup=None) for row in KNOWN.processes)

    assert Snapshot.from_json(text) == KNOWN._replace(gpus=gpus, processes=rows, listed_at=None)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", '{"gpus":[]}', '{"time":1,"gpus":[{}],"processes":[]}'])
def test_what_is_no_snapshot_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        Snapshot.from_json(text)


@pytest.mark.parametrize(("name", "simulated"), [("Simulated GPU 16GiB", True), ("NVIDIA A100", False), (None, False)])
def test_a_machine_is_simulated_when_its_gpus_say_so(name: str | None, simulated: bool) -> None:
    assert Snapshot(time=0, gpus=(Gpu(index=0, name=name),)).simulated == simulated
