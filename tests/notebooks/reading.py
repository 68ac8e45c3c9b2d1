"""What a notebook shows, as the tests of each notebook read it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat


def committed(path: Path) -> Any:
    """Return the notebook as it is in the repository."""
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # nbformat's


def shown(notebook: Any) -> dict[str, str]:
    """Return what each code cell printed, showed or raised, by its source; a source's second cell is ``source #2``."""
    found: dict[str, str] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            again = sum(source.partition(" #")[0] == cell.source for source in found)
            found[f"{cell.source} #{again + 1}" if again else cell.source] = "\n".join(map(_text, cell.outputs))
    return found


def words(cells: dict[str, str]) -> dict[str, list[str]]:
    """Return the words of what is shown; figures are all alike, as another TensorFlow or machine may change them."""
    alike = ((r"[▁▂▃▄▅▆▇█]+", "▁"), (r"-?[\d.]+|\bnan\b", "0"))  # a small chart goes by the time, too

    def one(text: str) -> list[str]:
        for pattern, instead in alike:
            text = re.sub(pattern, instead, text)
        return text.split()

    return {source: one(text) for source, text in cells.items()}


def tagged(notebook: Any) -> list[str]:
    """Return the cells that are said to fail."""
    return [cell.source for cell in notebook.cells if "raises-exception" in cell.metadata.get("tags", ())]


def places(path: Path) -> list[str]:
    """Return paths of the machine that ran it, where the file has any."""
    text = path.read_text()
    return re.findall(r"/(?:home|root|tmp|Users)/", text) + [sys.prefix] * text.count(sys.prefix)


def _text(output: Any) -> str:
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}"
    text: str = output.get("text") or output.get("data", {}).get("text/plain", "")
    return re.sub("Waiting for the NVIDIA driver, which is slow to answer…\n", "", text)  # as on a busy machine
