"""The live table where our front end may not be: what kernels send to clients of each kind, and what is saved."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

from scripts._notebooks import FOLDER
from tests.isolate.notebook import waits_for
from tests.machines import machine_of
from tests.slack import SLACK
from tests.views.conftest import Kernel
from tfgpu_magic.notebook.widget import NOT_LIVE, _read_built
from tfgpu_magic.simgpu import Machine

WIDGET = "application/vnd.jupyter.widget-view+json"
GPU = "Simulated GPU 8GiB"
ANSWERED = "from tfgpu_magic.notebook import widget\nassert not widget.MemoryTable._one._outputs._shown"
"""A cell after which no output waits for an answer, and so none loses its widget."""

machine = machine_of("8GiB", scope="function")


def outputs(here: Kernel) -> dict[str, dict[str, Any]]:
    """Return what each output shows now, by its display id, as a front end keeps it."""
    said = [one for one in here.heard if one["msg_type"] in ("display_data", "update_display_data")]
    return {one["content"]["transient"]["display_id"]: one["content"]["data"] for one in said}


def until(here: Kernel, widget: bool) -> list[dict[str, Any]]:
    """Wait until every output shows the widget, or none does, and return them."""
    for _ in range(int(300 * SLACK)):
        shown = list(outputs(here).values())
        if all((WIDGET in one) is widget for one in shown):
            return shown
        here.rest(0.1)
    raise AssertionError(shown)


def number(here: Kernel) -> str:
    """Return the id of the table's model."""
    (model,) = here.models()
    return str(model["comm_id"])


def answer(here: Kernel) -> None:
    """Say what the widget's module says when it has made the model."""
    here.send(number(here), {"type": "here"})


def test_a_client_that_knows_no_widgets_gets_the_table_as_html_and_text(here: Kernel) -> None:
    here.run("%tf_gpu top")
    (first,) = here.displayed()
    (then,) = until(here, widget=False)

    assert WIDGET in first
    assert NOT_LIVE not in first["text/html"] + first["text/plain"]
    assert GPU in then["text/html"]
    assert GPU in then["text/plain"]
    assert NOT_LIVE in then["text/html"]


def test_a_client_that_opens_the_model_and_never_draws_it_gets_it_too(here: Kernel) -> None:
    """As VS Code does that may load no script from outside."""
    here.run("%tf_gpu top")
    here.message(number(here), {"method": "request_state"})
    (then,) = until(here, widget=False)

    assert GPU in then["text/html"]


def test_the_answer_of_a_front_end_keeps_the_table_alive_in_every_output(here: Kernel, tmp_path: Path) -> None:
    go = tmp_path / "go"
    here.start(f"%tf_gpu top\n{waits_for(go)}")  # the kernel is busy: the answer waits
    here.until(lambda state: GPU in str(state))
    answer(here)
    go.touch()
    here.run("%tf_gpu top")
    here.run(ANSWERED)
    shown = until(here, widget=True)
    models = here.models()

    assert len(shown) == 2
    assert len(models) == 1


def test_a_cell_within_a_cell_ends_no_cell(here: Kernel) -> None:
    """No front end is heard while the outer one runs, so nothing is made of its silence."""
    here.run("import threading\nfrom tfgpu_magic.notebook import widget\nwidget.ANSWER_WITHIN = 3600")
    here.run(
        "result = get_ipython().run_cell('%tf_gpu top')\n"
        "assert result.success\n"
        "assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer)]\n"
        "assert widget.MemoryTable._one._pages._running"
    )
    here.run("widget.ANSWER_WITHIN = 0.1")
    until(here, widget=False)


def test_a_front_end_that_answers_late_has_the_live_table_again(here: Kernel) -> None:
    here.run("%tf_gpu top")
    until(here, widget=False)
    here.run("%tf_gpu top")
    without = [*outputs(here).values()]
    answer(here)
    both = until(here, widget=True)
    before = len(here.heard)
    here.run("%tf_gpu top")
    here.run(ANSWERED)
    last = [one["msg_type"] for one in here.heard[before:] if one["msg_type"].endswith("display_data")]

    assert [WIDGET in one for one in without] == [False, False]  # it is known by now, so that nothing flickers
    assert len(both) == 2
    assert last == ["display_data"]


def test_what_nbclient_and_papermill_save_shows_the_table_without_a_kernel(machine: Machine, tmp_path: Path) -> None:
    notebook = executed(machine, tmp_path, "%load_ext tfgpu_magic", "%tf_gpu top", "1 + 1")
    (saved,) = notebook.cells[1].outputs

    assert GPU in saved["data"]["text/plain"]
    assert GPU in visible(page(notebook))


@pytest.mark.parametrize(
    ("line", "why"),
    [("limit 99GiB", r"UsageError: Not applied\. [^\n]*99 GiB"), ("limti 9GiB", "'limti' is not a command")],
)
def test_nbclient_says_why_a_line_was_refused(machine: Machine, tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(CellExecutionError) as refused:
        executed(machine, tmp_path, "%load_ext tfgpu_magic", f"%tf_gpu {line}")

    *_, traceback = str(refused.value).split("------------------")

    assert re.search(why, traceback)


def executed(machine: Machine, folder: Path, *sources: str) -> Any:
    """Have nbclient run a notebook with these cells, and return it."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]  # type: ignore[no-untyped-call]  # nbformat's
    notebook = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]  # nbformat's
    options: dict[str, Any] = {"timeout": int(60 * SLACK), "resources": {"metadata": {"path": folder}}}
    NotebookClient(notebook, store_widget_state=False, **options).execute(env=machine.environ())
    return notebook


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: str(path.name))
def test_the_committed_notebooks_show_all_their_outputs_where_no_script_runs(path: Path) -> None:
    """GitHub shows HTML and text; nbviewer makes its pages with nbconvert."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # nbformat's
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
    tables = [visible(data["text/html"]) for data in shown if "text/html" in data]
    seen = visible(page(notebook))

    assert all("text/plain" in data for data in shown if data)
    assert [table for table in tables if table not in seen] == []


def page(notebook: Any) -> str:
    """Make a page of a notebook as nbviewer does."""
    return str(HTMLExporter().from_notebook_node(notebook)[0])  # type: ignore[no-untyped-call]  # nbconvert's


def visible(markup: str) -> str:
    """Return the words of a page that a reader sees."""
    return " ".join(html.unescape(re.sub(r"<style.*?</style>|<[^>]+>", " ", markup, flags=re.DOTALL)).split())


def test_the_widgets_script_loads_nothing() -> None:
    script = _read_built("widget.js")

    # A sentence may have the word.
    imports = r"\bimport\s*[({*\"'`]|\bimport\.meta|\bimport\s+[\w$]+\s*(?:,\s*[{*]|from\b)"
    assert re.findall(imports + r"|https?://[^\"'`\s]+", script) == []
