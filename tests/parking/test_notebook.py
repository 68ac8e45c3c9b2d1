"""A notebook that is parked waits for room, can be interrupted, and comes back as it was: real kernels."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

from tests.jupyter import reply_to
from tests.magic.shell import shown
from tests.parking.notebooks import SHELF, Parkable, digest_in, heard
from tests.parking.shelf import AWAY
from tests.processes import run
from tests.waiting import until


def test_a_cell_waits_for_room_and_says_so(notebook: Parkable, digest: str) -> None:
    notebook.park()
    with notebook.without_room():
        asked = notebook.client.execute("ran = True")
        until(lambda: heard(notebook), lambda text: "Waiting for room." in text)
        os.kill(notebook.pid, signal.SIGINT)
        answer = reply_to(notebook.client, asked)
        assert answer["status"] == "error"
        assert "The cell was not run. Interrupted: this notebook is still parked" in answer["evalue"]
        assert notebook.is_parked()
        heard(notebook)
        asked = notebook.client.execute("", user_expressions={"digest": "digest()"})
        until(lambda: heard(notebook), lambda text: "Waiting for room." in text)
        os.kill(notebook.pid, signal.SIGINT)
        assert reply_to(notebook.client, asked)["status"] == "error"
        assert notebook.is_parked()

        waiting = notebook.client.execute("waited = digest()")
        until(lambda: heard(notebook), lambda text: "Waiting for room." in text)
    assert reply_to(notebook.client, waiting)["status"] == "ok"
    assert notebook.run("print(waited, 'ran' in globals())").split() == [digest, "False"]


def test_many_cycles_leave_nothing_behind(notebook: Parkable, digest: str) -> None:
    count = (
        "import os, threading, time\n"
        "time.sleep(1)\n"  # one that has done its work may still be ending
        "names = sorted(one.name for one in threading.enumerate() if one.name != 'tfgpu_magic-watch')\n"
        "print(len(os.listdir('/proc/self/fd')), *names)"
    )
    for _ in range(2):
        notebook.park()
        notebook.run("pass")
    descriptors, *threads = notebook.run(count).split()
    for _ in range(10):
        notebook.park()
        assert digest_in(notebook.run("print(digest())")) == digest

    def left() -> bool:  # what is left behind is so each time
        now, *running = notebook.run(count).split()
        return int(now) >= int(descriptors) + 10 or bool(Counter(running) - Counter(threads))

    until(lambda: not left())


def test_in_a_terminal_it_is_parked_and_comes_back(tmp_path: Path) -> None:
    before, away, completions, after = run(None, _in_terminal, str(tmp_path))

    assert (away, completions) == (True, [])
    assert digest_in(after) == digest_in(before)
    assert not (tmp_path / AWAY).exists()


def _in_terminal(folder: str) -> tuple[str, bool, list[object], str]:
    """Return the digest, whether the arrays are away at the end of the cell, what is completed then, and the digest."""
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    _, before, _ = shown(SHELF.format(folder), "print(digest())", "shelf.park()")
    away = Path(folder, AWAY).exists()
    with provisionalcompleter():
        completions = list[object](InteractiveShell.instance().Completer.completions("dige", 4))
    return before, away, completions, shown("print(digest())")[0]
