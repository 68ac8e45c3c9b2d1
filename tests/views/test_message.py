"""What live views are sent: all of it once, then what changed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.figures import pytorch, tensorflow
from tests.rows import gpu_row, process_row
from tests.sizes import GIB
from tests.views.tables import ABSENT, BUSY, EMPTY, HOSTILE
from tfgpu_magic.ground.report import GpuUse, LogicalGpu
from tfgpu_magic.ground.rows import Notebook, Table
from tfgpu_magic.machine.board.history import History
from tfgpu_magic.tell import page_json

LEAVES = st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
STATES = st.recursive(
    st.dictionaries(st.text(max_size=2), LEAVES, max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=2), LEAVES | inner, max_size=4),
    max_leaves=12,
)


def live(table: Table, *, time: float = 100.0, stale: float | None = None, every: float = 1.0) -> Table:
    return replace(table, time=time, stale_since=stale, every=every)


def row(**fields: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"pid": 7, "kind": "C", "held": GIB} | fields
    one = process_row(**facts)
    (made,) = page_json.state(live(Table(processes=(one,))))["rows"].values()
    return dict(made)


def applied(target: Any, patch: Any) -> Any:
    """Apply a patch as RFC 7386, section 2, says word by word."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = applied(target.get(name), value)
    return target


@given(STATES, STATES)
def test_a_patch_makes_the_next_state_of_the_one_before(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert applied(before, page_json.patch(before, after)) == after


@given(STATES)
def test_nothing_new_is_an_empty_patch(state: dict[str, Any]) -> None:
    assert page_json.patch(state, state) == {}


def test_a_row_says_what_driver_kernel_and_server_know() -> None:
    use = GpuUse(
        gpu="0",
        policy="limit 2 GiB",
        logical=(LogicalGpu(name="GPU:0"),),
        figures=(*tensorflow(3, 5), *pytorch(1, 2)),
    )
    notebook = Notebook(path="work/eval.ipynb", kernel="abc", state="idle", active=50.04)

    assert row(use=use, notebook=notebook) == {
        "gpu": "0",
        "pid": 7,
        "kind": "C",
        "who": "mine",
        "owner": "eval.ipynb",
        "path": "work/eval.ipynb",
        "kernel": "abc",
        "state": "idle",
        "active": 50.0,
        "held": GIB,
        "policy": "limit 2 GiB",
        "figures": {"TensorFlow": {"in use": 3, "peak": 5}, "PyTorch": {"allocated": 1, "peak": 1, "reserved": 2}},
    }


HERE = Notebook(path="a.ipynb", kernel="abc")
ELSEWHERE = Notebook(path="/home/me/eval.ipynb", state="busy")


@pytest.mark.parametrize(
    ("known", "sent", "absent"),
    [
        ({"held": None}, {"gpu": "0", "pid": 7, "kind": "C", "who": "mine", "owner": "eval.ipynb"}, {"held"}),
        ({"pid": -7}, {}, {"pid"}),  # a kernel without a pid here
        ({"utilisation": 0, "unused": 40.44}, {"utilisation": 0, "unused": 40.4}, {"state"}),
        ({"utilisation": 5}, {"utilisation": 5}, {"unused"}),
        # When a process began is told of those alone that no server knows.
        ({"began": 123, "kernel": 7}, {"began": 123}, {"path"}),
        ({"began": 123, "kernel": 7, "notebook": HERE}, {"path": "a.ipynb", "kernel": "abc"}, {"began"}),
        ({"notebook": ELSEWHERE}, {"state": "busy"}, {"path", "kernel"}),  # a kernel of another server
    ],
)
def test_what_is_not_known_or_is_not_of_this_server_is_left_out(
    known: dict[str, Any], sent: dict[str, Any], absent: set[str]
) -> None:
    made = row(**known)

    assert made == made | sent
    assert not absent & made.keys()


def test_a_gpu_says_how_much_it_is_used_and_what_its_sensors_tell() -> None:
    used = gpu_row(sensors={"utilisation": 0.0, "temperature": 54.0, "power": 61.499, "broken": None})
    gpu = page_json.state(live(replace(EMPTY, gpus=(used,))))["gpus"]["0"]

    assert gpu == {"sensors": {"utilisation": 0, "temperature": 54, "power": 61}}


def test_gpus_are_found_by_label_and_rows_by_gpu_and_pid() -> None:
    made = page_json.state(live(BUSY))

    assert list(made["gpus"]) == ["0", "1", "2"]
    assert list(made["rows"]) == ["0 2373", "0 2533", "1 11", "1 rest"]
    assert made["gpus"]["2"] == {"name": "Tesla T4", "error": "the GPU is lost. Others go on"}


def test_what_is_not_well_is_said() -> None:
    assert page_json.state(live(ABSENT, stale=90.0)) == {
        "time": 100.0,
        "stale": 90.0,
        "error": "No NVIDIA driver was found.",
        "absent": True,
        "notes": [{"text": "TensorFlow is not imported.", "severity": "note"}],
        "gpus": {},
        "rows": {},
    }


def test_a_hostile_name_is_one_line_of_plain_characters() -> None:
    owner = row(owner=HOSTILE * 200)["owner"]

    assert len(owner) <= page_json.LONGEST_NAME
    assert not set(owner) & set("\n\x1b\u202e\ud800")


def test_figures_that_come_more_rarely_than_each_second_say_so() -> None:
    assert [page_json.state(live(EMPTY, every=every)).get("every") for every in (-20.0, 0.98, 10.6)] == [None, None, 11]


def test_the_history_of_an_hour_has_no_more_points_than_a_page_draws_and_loses_no_peak() -> None:
    times = tuple(float(time) for time in (*range(0, 3000, 10), *range(3000, 3600)))
    used = [5] * len(times)
    used[400] = 9
    unknown: tuple[int | None, ...] = (*used[:-3], None, None, None)
    sent = page_json.past(History(times, {"GPU-7": tuple(used), "GPU-8": unknown}, {"GPU-7": unknown}))

    assert (len(sent["times"]), sent["times"][0], sent["times"][-1]) == (300, 0.0, 3597.0)
    assert sorted(sent["used"]["GPU-7"]) == [*[5] * 299, 9]  # type: ignore[type-var]  # all are known
    assert sent["used"]["GPU-8"][-2:] == [5, None]
    assert sent["utilisation"] == {"GPU-7": sent["used"]["GPU-8"]}


def test_messages_are_json_in_one_line() -> None:
    state = page_json.state(live(EMPTY))
    full = page_json.full(3, state, History((1.0, 2.04), {"GPU-7": (5, None)}, {"GPU-7": (None, None)}), 2.5)
    tick = page_json.tick(4, 3, {"time": 101.0})

    assert json.loads(full) == {
        "version": page_json.VERSION,
        "type": "full",
        "sequence": 3,
        "state": state,
        "history": {"times": [1.0, 2.0], "used": {"GPU-7": [5, None]}},
        "every": 2.5,
    }
    assert tick == '{"version":8,"type":"tick","sequence":4,"base":3,"patch":{"time":101.0}}'
