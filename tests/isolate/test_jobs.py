"""Isolated cells that go on by themselves: futures, their output, and `%tf_gpu jobs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.isolate.notebook import Notebook, marks, waits_for
from tests.jupyter import reply_to
from tests.waiting import until


def later(book: Notebook, request: str, code: str, awaited: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Run a cell to its end, and return what came meanwhile, and before, for the cell of the request.

    If it is still without the awaited text then, more cells are run until it has that.
    """
    heard: list[tuple[str, dict[str, Any]]] = []
    ours = book.client.execute(code)
    while True:
        message = book.client.get_iopub_msg(timeout=240)
        if message["parent_header"].get("msg_id") == request:
            heard.append((message["msg_type"], message["content"]))
        idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
        if idle and message["parent_header"].get("msg_id") == ours:
            break
    if awaited not in str(heard):
        heard += later(book, request, "import time; time.sleep(0.1)", awaited)
    return heard


def test_a_job_is_a_future_and_its_output_comes_below_its_own_cell(book: Notebook) -> None:
    request = book.client.execute(
        "%%tf_gpu isolate --detach -o got\nimport time\nprint('begun')\ntime.sleep(1)\nprint('ended')\ngot = 5\n'value'"
    )
    heard = later(
        book,
        request,
        "job = _; answer = job.result()",
        awaited="Isolated: ",
    )
    text = "".join(content["text"] for kind, content in heard if kind == "stream")
    closing = [content["data"]["text/plain"] for kind, content in heard if kind == "display_data"]

    assert text == "begun\nended\nNow in the notebook: got.\n"
    assert closing[0].startswith("Isolated: ")
    assert book.run("answer, got, job.done()").value == "('value', 5, True)"
    assert book.run("import concurrent.futures; isinstance(job, concurrent.futures.Future)").value == "True"


def test_the_notebook_goes_on_meanwhile_and_jobs_are_listed(book: Notebook, tmp_path: Path) -> None:
    go = tmp_path / "go"
    book.run(
        "%%tf_gpu isolate --detach --growth\n\nimport tensorflow as tf, time\nx = tf.constant(1.0) + 1\n"
        f"{waits_for(go)}"
    )
    assert book.run("job = _; 1 + 1, job.done()").value == "(2, False)"
    until(lambda: "MiB" in listed(book) or "GiB of GPU 0" in listed(book))
    row = listed(book).splitlines()[-1].split()
    assert "this notebook's isolated call" in book.run("%tf_gpu").shown()[0]["text/plain"]

    assert row[1] == "running"
    assert row[-5:] == ["x", "=", "tf.constant(1.0)", "+", "1"]  # what tells more than the import before it
    go.touch()
    until(lambda: " done " in listed(book).splitlines()[-1])


def listed(book: Notebook) -> str:
    return str(book.run("%tf_gpu jobs").shown()[0]["text/plain"])


def test_a_job_that_fails_says_so_below_its_cell_and_raises_when_asked(book: Notebook) -> None:
    request = book.client.execute("%%tf_gpu isolate --detach\n1 / 0")
    heard = later(book, request, "job = _; job.exception(timeout=240)", awaited="ZeroDivisionError")
    ran = book.run("job.result()")

    assert "ZeroDivisionError" in "".join(content["text"] for kind, content in heard if kind == "stream")
    assert ran.error["ename"] == "ZeroDivisionError"
    assert "ZeroDivisionError" in listed(book).splitlines()[-1]


def test_a_job_can_be_stopped_and_an_interrupt_of_the_notebook_does_not(book: Notebook, tmp_path: Path) -> None:
    book.run("%%tf_gpu isolate --detach\nimport time\nwhile True: time.sleep(0.1)")
    book.run("job = _")
    begun = tmp_path / "begun"
    asked = book.client.execute(f"import time; open({str(begun)!r}, 'w').close(); time.sleep(600)")
    until(begun.exists)
    book.interrupt()

    assert reply_to(book.client, asked)["ename"] == "KeyboardInterrupt"
    assert book.run("job.done()").value == "False"
    number = book.run("job.number").value
    assert f"cannot be done. Job {number} can be stopped." in book.run("%tf_gpu jobs stop 99").stream("stderr")
    book.run(f"%tf_gpu jobs stop {number}")
    assert book.run("job.exception(timeout=240)").value.startswith("KeyboardInterrupt")
    assert " stopped " in listed(book).splitlines()[-1]


def test_a_cell_that_waits_for_a_gpu_says_so(book: Notebook, tmp_path: Path) -> None:
    go, says = tmp_path / "go", "Waits for 1 GPU, which other calls of yours have."
    book.isolated(waits_for(go), "--detach --gpus 1")
    ran = book.isolated("'done'", "--gpus 1", heard=marks(says, go))

    assert says in ran.text
    assert ran.value == "'done'"


def test_a_job_has_the_notebooks_arrays_as_they_were_when_it_was_begun(book: Notebook, tmp_path: Path) -> None:
    go = tmp_path / "go"
    book.run("import numpy as np; a = np.zeros(10**6)")
    book.isolated(waits_for(go), "--detach --gpus 1")
    book.run("%%tf_gpu isolate --detach --gpus 1\nfloat(a.sum())")  # it waits for the GPU
    book.run("job = _; a += 1")
    go.touch()

    assert book.run("job.result()").value == "0.0"


def test_a_cell_that_is_stopped_before_it_begins_does_not(book: Notebook) -> None:
    ran = book.run(
        "from tfgpu_magic.notebook.words import line\nrun = line.prepare('isolate', 'print(1)', get_ipython())\n"
        "run.__self__.running.stop()\nrun()"
    )

    assert ran.error["evalue"] == "The cell was stopped before it began."
    assert ran.stream() == ""
