"""Processes share files of few kinds: what a used directory has is a snapshot, a history, and reports, JSON each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.server.acting import Kernel
from tests.server.streaming import streaming
from tests.server.test_idle_steps import TRAINED

if TYPE_CHECKING:
    from tests.server.conftest import Serve

KINDS = {"snapshot", "history", "report"}
TABLE = {"claims"}
"""What isolated calls share."""
EMPTY = {"lock", "viewers", "asked", "pick", "park"}
"""What has no content, but a lock or a time."""


def test_notebooks_calls_parking_and_a_view_share_files_of_three_kinds_beside_the_claims(serve: Serve) -> None:
    server = serve()
    with Kernel(server, "Untitled.ipynb") as notebook, Kernel(server, "calls.ipynb") as calls:
        notebook.run(TRAINED)
        server.call(f"sessions/{notebook.session}", {"path": "train.ipynb"}, method="PATCH")
        calls.run("%load_ext tfgpu_magic\n%tf_gpu pick; limit 1GiB")
        answer = calls.run("%%tf_gpu isolate limit 1GiB\nprint(6 * 7)")
        with streaming(server) as stream:
            stream.until(lambda state: notebook.row(state).get("owner") == "train.ipynb", 30)
            parked = notebook.run("%tf_gpu park")
            stream.until(lambda state: notebook.row(state).get("parked"), 30)
        found = [path for path in (server.home / "board").iterdir() if "new" not in path.name]
        texts = {path.name: path.read_bytes() for path in found}
    kinds = {name: name.partition("-")[0] for name in texts}

    assert "42" in answer
    assert "Parked in" in parked
    assert {kinds[name] for name, text in texts.items() if text} == KINDS | TABLE
    assert {kinds[name] for name, text in texts.items() if not text} <= EMPTY
    reports = [json.loads(text) for name, text in texts.items() if kinds[name] == "report"]
    assert sum(bool(report["names"]) for report in reports) == 1
    for name in [name for name, kind in kinds.items() if kind in KINDS]:
        assert all(isinstance(json.loads(line), dict) for line in texts[name].splitlines() if line)
