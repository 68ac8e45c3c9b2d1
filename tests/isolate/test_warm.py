"""Getting ready for isolated cells, by a word or by configuration: before the first cell, and without any GPU."""

from __future__ import annotations

from pathlib import Path

from tests.isolate.notebook import Notebook, notebook
from tests.jupyter import serving
from tests.processes import QUIET
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

IS_WARM = """
from tfgpu_magic.isolate.pool import FORK_SERVER
print(FORK_SERVER.process().pid, FORK_SERVER.process().is_warm())
"""


def warmed(book: Notebook) -> str:
    """Return the process that calls are started from, once TensorFlow is imported there."""
    pid, warm = book.run(IS_WARM).stream().split()
    return pid if warm == "True" else ""


def test_warm_gets_ready_at_once_and_the_first_cell_starts_from_there(machine: Machine, tmp_path: Path) -> None:
    with notebook(machine, tmp_path) as book:
        before = book.family()
        ran = book.run("%tf_gpu isolate --warm")
        pid = until(lambda: warmed(book))
        held = machine.held()
        cell = book.isolated("import sys; print('tensorflow' in sys.modules)")
        imported = book.run("import sys; 'tensorflow' in sys.modules").value
        after = warmed(book)

    assert before == []
    assert ran.stream() == "Getting ready for isolated cells: TensorFlow is being imported for them.\n"
    assert held == 0
    assert cell.stream() == "True\n"  # nothing said of an import that it waits for
    assert imported == "False"
    assert after == pid


def test_where_it_is_configured_loading_the_extension_does_that(machine: Machine, tmp_path: Path) -> None:
    profile = tmp_path / ".ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text("c = get_config()\nc.TfGpuMagics.warm = True\n")
    with serving(machine, tmp_path, environment=QUIET) as server, Notebook(server) as book:
        family = [child.pid for child in book.family()]
        pid = until(lambda: warmed(book))

        assert int(pid) in family
        assert machine.held() == 0
