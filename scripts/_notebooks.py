"""Runs the notebooks on the simulated machine and keeps what they show: what scripts/notebooks does."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from scripts._machine import simulated

FOLDER = Path(__file__).parents[1] / "notebooks"
_PID = re.compile(r"^ *\d+ +(\d+) +[CGM] ", re.MULTILINE)


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
    with simulated() as machine, tempfile.TemporaryDirectory() as folder:
        environment = machine.environ() | {"IPYTHONDIR": folder}
        client = NotebookClient(
            notebook, timeout=240, record_timing=False, coalesce_streams=True, resources={"metadata": {"path": folder}}
        )
        client.execute(env=environment)
    _make_alike(notebook)
    return notebook


def _make_alike(notebook: Any) -> None:
    """Number the processes by their first appearance, and drop the names of this machine's Python and of widgets."""
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    texts = [text for cell in notebook.cells for output in cell.get("outputs", ()) for text in _texts(output)]
    pids = dict.fromkeys(pid for text in texts for pid in _PID.findall(text))
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
