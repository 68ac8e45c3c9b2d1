"""Calls of several notebooks on the same simulated GPUs; the driver's account judges."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.isolate.notebook import LIGHT, Notebook, notebook
from tests.jupyter import PATIENT
from tests.sizes import GIB, MIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

HOLD = """
from tests.isolate import on_machine as on
from tfgpu_magic import IsolatedExecutor
executor = IsolatedExecutor(4, policy={policy!r})
"""


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Notebook, Notebook]]:
    """Two kernels on a machine of two GPUs, each ready for isolated cells."""
    root = str(Path(__file__).parents[2])
    line = f"import sys; sys.path.insert(0, {root!r})"
    with (
        Machine.create("2x8GiB") as machine,
        notebook(machine, tmp_path_factory.mktemp("home"), line, options=[PATIENT]) as one,
        Notebook(one.server, line) as other,
    ):
        for book in (one, other):
            book.ok("%%tf_gpu isolate\npass")
        yield machine, one, other


def both(books: list[Notebook], code: str) -> list[str]:
    """Return what `got` is in each notebook when a cell has run in all at the same time."""
    requests = [book.client.execute(code) for book in books]
    for book, request in zip(books, requests, strict=True):
        while book.client.get_shell_msg(timeout=240)["parent_header"].get("msg_id") != request:
            pass
    return [book.ok("got").text for book in books]


def test_jobs_with_limits_of_two_notebooks_never_take_more_than_there_is(
    books: tuple[Machine, Notebook, Notebook],
) -> None:
    machine, *kernels = books
    for book in kernels:
        book.ok(HOLD.format(policy="visible 0; limit 40%"))
    most, over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.05):
            most = max(most, len([row for row in machine.processes() if row.gpu == 0]))

    watching = threading.Thread(target=watch)
    watching.start()
    code = "futures = [executor.submit(on.hold, seconds=1.0) for _ in range(4)]\n"
    code += "got = [f.result().mine[0] for f in futures]"
    try:
        held = [size for value in both(kernels, code) for size in ast.literal_eval(value)]
    finally:
        over.set()
        watching.join()

    assert len(set(held)) == 1  # each had all that it asked for
    assert 8 * GIB * 38 // 100 < held[0] <= 8 * GIB * 40 // 100
    assert most == 2


def test_cells_of_two_notebooks_that_begin_at_once_get_different_gpus(
    books: tuple[Machine, Notebook, Notebook], tmp_path: Path
) -> None:
    _, *kernels = books
    code = "%%tf_gpu isolate --gpus 1 -o got\nfrom tests.isolate import on_machine as on\n"

    gpus = both(kernels, f"{code}got = on.hold({str(tmp_path)!r}, 2).gpus")
    assert sorted(gpus) == ["[0]", "[1]"]


def test_two_detached_cells_with_a_limit_share_a_gpu_only_if_both_fit(
    books: tuple[Machine, Notebook, Notebook],
) -> None:
    _, book, _ = books
    for name in ("one", "other"):
        book.ok(
            f"%%tf_gpu isolate --detach -o {name} visible 0; limit 60%\n"
            f"from tests.isolate import on_machine as on\n{name} = on.hold(seconds=1.0).mine[0]"
        )
        book.ok(f"{name}_job = _")
    book.ok("one_job.result(), other_job.result()")

    sizes = ast.literal_eval(book.ok("[one, other]").value)
    assert [size > 8 * GIB * 60 // 100 - MIB for size in sizes] == [True, True]


def test_submitted_calls_stand_among_the_jobs_and_in_errors_with_their_lines(
    books: tuple[Machine, Notebook, Notebook],
) -> None:
    _, book, _ = books
    book.ok(HOLD.format(policy=None))
    book.run("import time\ndef nap(): time.sleep(60)\nnapping = executor.submit(nap)")
    until(lambda: " running " in book.run("%tf_gpu jobs").shown()[0]["text/plain"].splitlines()[-1])
    row = book.run("%tf_gpu jobs").shown()[0]["text/plain"].splitlines()[-1]
    book.run(f"%tf_gpu jobs stop {row.split()[0]}")

    assert row.endswith("nap")
    assert "The call was stopped" in book.run("napping.result()").error["evalue"]
    book.run("def fails():\n    wrong = 1\n    raise ValueError(wrong)  # this line")
    told = book.run("executor.submit(fails).result()").traceback
    assert "# this line" in told
    assert "tfgpu_magic/isolate" not in told


def test_a_kernel_that_ends_waits_for_no_call(books: tuple[Machine, Notebook, Notebook], tmp_path: Path) -> None:
    _, book, _ = books
    with Notebook(book.server, LIGHT) as ending:
        ending.run(
            "import atexit, pathlib, time\nfrom tfgpu_magic import IsolatedExecutor\n"
            f"executor = IsolatedExecutor(1, gpus=0); executor.submit(time.sleep, 600)\n"
            f"atexit.register(pathlib.Path({str(tmp_path / 'ended')!r}).touch)"
        )

    # Else it would have been killed when Jupyter lost its patience, and atexit's handlers with it.
    assert (tmp_path / "ended").exists()
