"""A notebook is parked by another one of the same user, and every view says so: real kernels, the real TensorFlow."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.command.shell import tfgpu
from tests.jupyter import Notebook, reply_to
from tests.parking.notebooks import Parkable, Site, ask
from tests.sizes import LITTLE, MIB
from tests.waiting import until
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.frameworks import self_report
from tfgpu_magic.ground.report import Parked
from tfgpu_magic.parking import other_notebooks
from tfgpu_magic.parking.outcome import BUSY, UNLOADED, ParkOutcome
from tfgpu_magic.policy.plan import Plan


@pytest.fixture(scope="module")
def other(site: Site) -> Iterator[Notebook]:
    with Notebook(site.server, "other.ipynb") as notebook:
        yield notebook


def said(outcome: ParkOutcome) -> tuple[bool, str]:
    return outcome.parked, "\n".join(map(str, outcome.lines))


def test_a_kernel_in_a_cell_is_not_parked_nor_later(trained: Parkable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_notebooks, "BEGIN_TIMEOUT", 0.1)
    asked = trained.client.execute("input()", allow_stdin=True)
    trained.client.get_stdin_msg(timeout=240)
    until(lambda: any(one.busy for one in other_notebooks.reports() if one.pid == trained.pid))
    outcome = other_notebooks.ask_to_park(trained.pid)
    trained.client.input("")
    reply_to(trained.client, asked)
    monkeypatch.undo()

    assert said(outcome) == (False, str(BUSY))
    assert "Parked in" in said(other_notebooks.ask_to_park(trained.pid))[1]
    assert trained.finds() == trained.digest


def test_what_is_no_kernel_is_not_asked(other: Notebook) -> None:
    child = int(other.run("import subprocess; child = subprocess.Popen(['sleep', '600']); print(child.pid)"))
    for pid in (os.getpid(), child, 1):
        asked = other_notebooks.ask_to_park(pid)
        assert said(asked) == (False, f"Process {pid} is no kernel of a notebook of yours.")
    other.run("child.kill(); child.wait()")


def test_a_name_is_the_end_of_a_path_or_a_pid() -> None:
    named = {7: "a/model.ipynb", 8: "b/model.ipynb", 9: "other.ipynb", os.getpid(): "own.ipynb"}

    assert other_notebooks.find_among("other.ipynb", named) == (9, "other.ipynb")
    assert other_notebooks.find_among("a/model.ipynb", named) == (7, "model.ipynb")
    assert other_notebooks.find_among("8", named) == (8, "model.ipynb")
    assert other_notebooks.find_among("own.ipynb", named)[0] == os.getpid()
    with pytest.raises(PolicyError, match=r"several: a/model.ipynb \(pid 7\), b/model.ipynb \(pid 8\)\. "):
        other_notebooks.find_among("model.ipynb", named)
    with pytest.raises(PolicyError, match=r"is called 'odel.ipynb'. There are: .*, other.ipynb \(pid 9\)\.$"):
        other_notebooks.find_among("odel.ipynb", named)


def test_nobody_keeps_room_for_what_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "most", lambda *_, **__: {"GPU-1": MIB})
    limits = []
    for parked in (None, MIB):
        monkeypatch.setattr(self_report, "away", lambda parked=parked: {"GPU-1": Parked(size=parked)})
        limits.append(self_report.claims(self_report.short_report())["GPU-1"])

    assert limits == [MIB, None]


def test_a_notebook_is_parked_by_its_name_and_every_view_says_so(
    site: Site, trained: Parkable, other: Notebook
) -> None:
    def row() -> dict[str, Any]:
        rows = json.loads(tfgpu(site.machine, "status", "--json").stdout)["state"]["rows"].values()
        return dict(next(one for one in rows if one["owner"] == "model.ipynb"))

    offered = ask(other, "complete_request", {"code": "%tf_gpu park m", "cursor_pos": 14})["matches"]
    said = other.run("%tf_gpu park model.ipynb")
    parked = row()

    assert offered == ["model.ipynb"]
    assert "model.ipynb: Parked in" in said
    assert "All is back before its next cell runs." in said
    assert parked["parked"]["size"] > 64 * MIB
    assert parked["held"] in LITTLE
    assert re.search(r"parked: 0\.1 GiB in host memory, 0\.[23] GiB stay", other.run("%tf_gpu status"))
    assert "It is parked already." in other.run("%tf_gpu park model.ipynb")
    assert trained.finds() == trained.digest
    until(lambda: row()["parked"].keys() == {"back"})
    assert "back in " in other.run("%tf_gpu status")


def test_what_is_not_parked_says_why_and_what_to_do(trained: Parkable, other: Notebook) -> None:
    nobody = other.run("%tf_gpu park nobody.ipynb")
    trained.run("%unload_ext tfgpu_magic")
    without = other.run("%tf_gpu park model.ipynb")
    trained.run("%load_ext tfgpu_magic")
    own = other.run("%tf_gpu park other.ipynb")

    assert f"is called 'nobody.ipynb'. There are: model.ipynb (pid {trained.pid})." in nobody
    assert f"model.ipynb is not parked. {UNLOADED}" in without
    assert "Not parked." in own
    assert "Neither TensorFlow nor PyTorch has anything on a GPU here." in own
