"""The one JSON form of a snapshot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot

TEXTS = st.none() | st.text()
SIZES = st.none() | st.integers(0, 2**64 - 1)
GPUS = st.builds(
    Gpu,
    index=st.integers(0, 99),
    instance=st.none() | st.integers(0, 7),
    uuid=TEXTS,
    name=TEXTS,
    total=SIZES,
    used=SIZES,
    free=SIZES,
    reserved=SIZES,
    capability=st.none() | st.tuples(st.integers(0, 99), st.integers(0, 9)),
    multiprocessors=st.none() | st.integers(1, 999),
    mig=st.booleans(),
    unified=st.booleans(),
    listed=st.booleans(),
    error=TEXTS,
)
PROCESSES = st.builds(Process, gpu=st.text(), pid=st.integers(1, 2**22), kind=st.text(), held=SIZES, utilisation=SIZES)
SNAPSHOTS = st.builds(
    Snapshot,
    time=st.floats(0, 2**40),
    driver=TEXTS,
    gpus=st.lists(GPUS, max_size=4).map(tuple),
    processes=st.lists(PROCESSES, max_size=4).map(tuple),
    error=TEXTS,
    absent=st.booleans(),
    notes=st.lists(st.text(), max_size=3).map(tuple),
    listed_at=st.none() | st.floats(0, 2**40),
)


@given(SNAPSHOTS)
def test_json_gives_back_what_was_written_in_one_line(snapshot: Snapshot) -> None:
    text = snapshot.to_json()

    assert "\n" not in text
    assert Snapshot.from_json(text) == snapshot


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", '{"gpus":[]}', '{"time":1,"gpus":[{}],"processes":[]}'])
def test_what_is_no_snapshot_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        Snapshot.from_json(text)


def test_a_machine_is_simulated_when_its_gpus_say_so() -> None:
    def named(name: str | None) -> bool:
        return Snapshot(time=0, gpus=(Gpu(index=0, name=name),)).simulated

    assert named("Simulated GPU 16GiB")
    assert not named("NVIDIA A100")
    assert not named(None)
