"""Runs the notebooks on the simulated machine and keeps what they show: what scripts/notebooks does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete
from nbclient.util import ensure_async

from scripts._scratch import scratch
from tfgpu_magic.simgpu.demo.machine import simulated_machine

FOLDER = Path(__file__).parents[1] / "notebooks"
_PID = re.compile(r"^ *\d+ +(\d+) +[CGM] |^ *\d+ +running +[\d.]+ s +(\d+) ", re.MULTILINE)
"""A process in the table of processes, or in that of jobs."""

PATIENT = """\
def _wait():
    from tfgpu_magic.machine import see
    from tfgpu_magic.tell import fetch
    see.look.__defaults__ = (60.0,)
    for function in (fetch.table, fetch.owners):
        function.__kwdefaults__["timeout"] = 60.0
_wait()
del _wait
"""
"""What a kernel runs that waits for its figures as long as a busy machine takes."""


def main() -> None:
    """Run every notebook, and write it back with its new outputs."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(run(path), path)  # type: ignore[no-untyped-call]  # nbformat's
        print(f"{path.name}: run, and written with its outputs.")


def run(path: Path) -> Any:
    """Run a notebook in a fresh kernel on the simulated machine, in a folder of its own.

    Returns:
        The notebook with its outputs, those that differ from run to run (process ids) made alike.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed that is not tagged ``raises-exception``.
    """
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # nbformat's
    with simulated_machine() as machine, scratch() as folder:
        startup = Path(folder, "profile_default", "startup")
        startup.mkdir(parents=True)
        (startup / "patient.py").write_text(PATIENT)
        # oneDNN's line on standard error has the time and the process in it.
        environment = machine.environ() | {"IPYTHONDIR": folder, "TF_ENABLE_ONEDNN_OPTS": "0"}
        client = _Client(notebook, timeout=240, record_timing=False, resources={"metadata": {"path": folder}})
        client.execute(env=environment)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    _make_alike(notebook)
    return notebook


class _Client(NotebookClient):
    """Keeps also what a cell shows after its end, as front ends do; nbclient has no public way to it."""

    async def _async_poll_output_msg(self, parent_msg_id: str, cell: Any, cell_index: int) -> None:
        assert self.kc is not None
        asked = self.__dict__.setdefault("_asked", {})
        asked[parent_msg_id] = (cell, cell_index)
        while True:
            message = await ensure_async(self.kc.iopub_channel.get_msg(timeout=None))
            place = asked.get(message["parent_header"].get("msg_id"))
            if place and (place[0] is cell or message["msg_type"] != "update_display_data"):  # a table without a widget
                try:
                    self.process_message(message, *place)
                except CellExecutionComplete:
                    return


def _joined(outputs: list[Any]) -> list[Any]:
    """Text that came in pieces in one piece, as front ends show it."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output["output_type"] == "stream" and joined[-1].get("name") == output["name"]:
            joined[-1]["text"] += output["text"]
        else:
            joined.append(output)
    return joined


def _make_alike(notebook: Any) -> None:
    """Number the processes by their first appearance, and drop the names of this machine's Python and of widgets."""
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    texts = [text for cell in notebook.cells for output in cell.get("outputs", ()) for text in _texts(output)]
    pids = dict.fromkeys(found[found.lastindex] for text in texts for found in _PID.finditer(text) if found.lastindex)
    alike = {pid: str(4 * 10 ** (len(pid) - 1) + place) for place, pid in enumerate(pids, 1)}  # as long as it was
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
            for holder, key in _places(output):
                holder[key] = re.sub(r"\b\d+\b", lambda number: alike.get(number[0], number[0]), holder[key])


def _texts(output: Any) -> list[str]:
    return [holder[key] for holder, key in _places(output)]


def _places(output: Any) -> list[tuple[Any, str]]:
    """Where an output keeps its texts."""
    if output["output_type"] == "stream":
        return [(output, "text")]
    return [(output["data"], kind) for kind in output.get("data", ()) if kind.startswith("text/")]


if __name__ == "__main__":
    main()
