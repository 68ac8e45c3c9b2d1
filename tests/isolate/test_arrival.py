"""What an isolated cell gives arrives: whole or piece by piece, at the right time, and what cannot is an error."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.isolate.notebook import Notebook, waits_for
from tests.waiting import until

ONLY_THERE = """
import os
class OnlyThere:
    def __init__(self): self.home = home
    def __setstate__(self, state):
        if os.getpid() == state["home"]:
            raise ValueError("not here")
"""


@pytest.fixture(scope="module")
def book(book: Notebook) -> Notebook:
    book.run(ONLY_THERE + "home = os.getpid()")
    return book


STAYS = {
    "lock": ("threading.Lock()", "lock stays in its process: lock cannot be sent"),
    "ds": ("tf.data.Dataset.range(3)", "ds stays in its process: ds: tensorflow."),
    "opt": ("keras.optimizers.SGD()", "opt stays in its process: opt: keras."),
    "large": ("bytearray(180 * 2**20)", "large stays in its process: There is no room for 180 MiB of memory"),
}
LOSES = """
import keras, threading, tensorflow as tf
from tfgpu_magic.machine import host_memory
host_memory.free_bytes = lambda: 200 * 2**20
n, shared = 1, [1]
if n == 2: none = 1
"""


def test_what_cannot_leave_its_process_is_an_error_by_name_and_takes_nothing_else_along(book: Notebook) -> None:
    names = ",".join(STAYS)
    book.run(f"n = {' = '.join(STAYS)} = 'old'")
    ran = book.isolated(
        LOSES + "".join(f"{name} = {made}\n" for name, (made, _) in STAYS.items()) + "[lock, shared]",
        f"-o {names},n,shared,none",
    )
    kept = book.run(names).value

    assert ran.error["ename"] == "Unpicklable"
    for said in (
        *(said for _, said in STAYS.values()),
        "none stays in its process: the cell has not bound none",
        "Bring back numpy arrays",
        "The notebook's own lock, ds, opt, large are as before",
    ):
        assert said in ran.error["evalue"]
        assert said not in ran.closing  # it is said once
    assert "Its value stays in its process" in ran.closing
    assert any("_thread.lock" in data["text/plain"] for data in ran.shown())  # the value is seen all the same
    assert kept == str(("old",) * len(STAYS))
    assert book.run("n, shared").value == "(1, [1])"


def test_what_a_cell_raises_goes_before_what_did_not_come(book: Notebook) -> None:
    ran = book.isolated("import threading\ngot, lock = [1, 2], threading.Lock()\n1 / 0\nnone = 1", "-o got,lock,none")

    assert ran.error["ename"] == "ZeroDivisionError"
    assert "lock stays in its process" in ran.closing
    assert "none stays in its process" in ran.closing
    assert book.run("got").value == "[1, 2]"


def test_what_cannot_be_made_again_here_takes_nothing_else_along(book: Notebook) -> None:
    lost = book.isolated("odd, acc, shared = OnlyThere(), 0.9, [1]\n[shared]", "-o odd,acc,shared")
    came = book.run("_, acc, shared").value
    seen = book.isolated("y = 'precious'\nOnlyThere()", "-o y")

    assert lost.error["ename"] == "Unpicklable"
    assert lost.error["evalue"].startswith("odd cannot be made again in this notebook")
    assert "odd cannot be made again in this notebook: not here" in lost.closing
    assert (lost.value, came) == ("[[1]]", "([[1]], 0.9, [1])")
    assert "NameError" in book.run("odd").text
    assert seen.status == "ok"
    assert any("OnlyThere at" in data["text/plain"] for data in seen.shown())
    assert "Its value cannot be made again in this notebook: not here" in seen.closing
    assert book.run("y").value == "'precious'"


def test_an_interrupt_while_the_names_are_pickled_loses_none(book: Notebook, tmp_path: Path) -> None:
    body = f"""
    import pathlib, time
    class Slow:
        def __reduce__(self):
            pathlib.Path({str(tmp_path / "mark")!r}).touch()
            while not pathlib.Path({str(tmp_path / "interrupted")!r}).exists(): time.sleep(0.01)
            time.sleep(0.5)
            return str, ("made in hours",)
    made = Slow()
    """

    with book.interrupted((tmp_path / "mark").exists, then=(tmp_path / "interrupted").touch):
        book.isolated(textwrap.dedent(body), "-o made")

    assert book.run("made").value == "'made in hours'"


def test_a_module_that_only_the_cell_finds_takes_nothing_else_along(
    book: Notebook, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("there")
    (folder / "later").mkdir()
    for path in ("only_there", "later/only_later"):
        (folder / path).with_suffix(".py").write_text("class Model: pass\n")
    there = f"import sys; sys.path.append({str(folder)!r})"
    later = f"import sys; sys.path.append({str(folder / 'later')!r})"
    ran = book.isolated(
        f"{there}\n{later}\nimport only_there, only_later\n"
        "m, late, got = only_there.Model(), only_later.Model(), 'precious'",
        "-o m,late,got",
    )

    assert ran.error["ename"] == "Unpicklable"
    assert "m cannot be made again in this notebook: No module named 'only_there'" in ran.closing
    assert book.run("got").value == "'precious'"
    assert "late cannot be made" in book.run(f"got = 'mine'; {there}; sys.last_value.value()").text
    assert book.run("type(m).__module__, got").value == "('only_there', 'mine')"
    assert book.run(f"m = 'mine'; {later}; [*sys.last_value.value()], m").value == "(['late'], 'mine')"


def test_a_job_gives_its_names_and_its_value_though_one_is_lost(book: Notebook) -> None:
    book.isolated("odd, acc = OnlyThere(), 0.5\n'value'", "--detach -o odd,acc")
    valued = book.run("job = _; job.result(), acc").value
    book.isolated("odd = OnlyThere()", "--detach -o odd")
    lost = book.run("_.exception()").value
    book.run("lock = 'old'")
    book.isolated("import threading\nlock, n = threading.Lock(), 5\n7", "--detach -o lock,n")
    ran = book.run("job = _\njob.result()")

    assert valued == "('value', 0.5)"
    assert lost.startswith("tfgpu_magic.errors.Unpicklable(")
    assert ran.error["ename"] == "Unpicklable"
    assert "lock stays in its process" in ran.error["evalue"]
    assert book.run("lock, n, job.exception().value()").value == "('old', 5, 7)"


def test_a_picture_of_whatever_data_is_shown_as_by_a_plain_cell(book: Notebook) -> None:
    bundle = "{'text/plain': 'odd', 'application/json': {'a': 1}.keys()}"
    body = f"x = 5\nclass Odd:\n    def _repr_mimebundle_(self, **_):\n        return {bundle}\nOdd()"
    plain, ours = book.run(body), book.isolated(body.replace("x = 5", "x = 6"), "-o x")

    assert ours.status == "ok", ours.text
    assert ours.shown("execute_result") == plain.shown("execute_result")
    assert book.run("x").value == "6"


@pytest.mark.parametrize("step", ["_take", "_show_summary"])
def test_an_interrupt_after_the_answer_loses_nothing_of_it(book: Notebook, step: str) -> None:
    book.run(
        f"import tfgpu_magic.isolate.cells.cell as c, os, signal\ngot, plain = 'old', c.Cell.{step}\n"
        "def late(self, *args):\n"
        "    said = plain(self, *args)\n    os.kill(os.getpid(), signal.SIGINT)\n    return said\n"
        f"c.Cell.{step} = late"
    )
    ran = book.isolated("got = 'finished'\n'value'", "-o got")
    book.run(f"c.Cell.{step} = plain")

    assert ran.error["ename"] == "KeyboardInterrupt"
    assert ran.closing
    assert ran.value == "'value'"
    assert book.run("got").value == "'finished'"


def test_a_value_is_shown_as_it_is_and_not_as_it_was(book: Notebook) -> None:
    table = (
        "class Table:\n    def __init__(self): self.rows = ['old']\n    def _repr_html_(self): return f'{self.rows}'"
    )
    book.run(table)
    book.isolated("Table()", "--detach")
    job = book.run("d = _.result(); d.rows.append('new')\nd").shown("execute_result")
    book.run("e = get_ipython().run_cell_magic('tf_gpu', 'isolate', 'Table()')")
    cell = book.run("e.rows.append('new')\ne").shown("execute_result")

    assert job[0]["text/html"] == cell[0]["text/html"] == "['old', 'new']"


def test_names_of_a_job_are_put_into_the_notebook_between_cells(book: Notebook, tmp_path: Path) -> None:
    go = tmp_path / "go"
    book.run("got, was = 'old', set()")
    book.isolated(f"{waits_for(go)}got = 'new'", "--detach -o got")
    ends = f"open({str(go)!r}, 'w').close()\nimport concurrent.futures\nconcurrent.futures.wait([job])\n"
    amid = book.run(f"job = _\n{ends}got").value  # a job deals with its names before it is done
    after = book.run("got").value

    assert (amid, after) == ("'old'", "'new'")
    book.isolated("import time\ntime.sleep(0.5)\nnow_here = 'new'", "--detach -o now_here")
    until(lambda: book.run("print('now_here' in globals())").stream() == "True\n")  # while no cell runs


@pytest.mark.parametrize("ask", ["job.result(60)", "job.exception(60)", "while not job.done(): pass"])
def test_who_asks_a_job_has_its_names_in_the_same_cell(book: Notebook, ask: str) -> None:
    book.run("got = 'old'")
    book.isolated("import time\ntime.sleep(0.2)\ngot = 'new'", "--detach -o got")

    assert book.run(f"job = _\n{ask}\ngot").value == "'new'"


def test_the_line_at_the_end_is_below_all_else_and_captured_with_it(book: Notebook) -> None:
    value, error = book.isolated("print('text')\n5"), book.isolated("1 / 0")
    captured = book.run("%%capture seen\n%%tf_gpu isolate\nprint('text')")
    shown = ("execute_result", "error", "display_data")
    kinds = [[kind for kind, _ in ran.messages if kind in shown] for ran in (value, error, captured)]

    assert kinds == [["execute_result", "display_data"], ["error", "display_data"], []]
    assert "Isolated: " in book.run("repr(seen.outputs[-1].data)").value


def test_what_a_cell_has_read_is_let_go_of_when_it_ends(book: Notebook) -> None:
    book.run("import gc, weakref, numpy as np\nfreed = []\ngc.disable()")
    for body, line in (("big.sum()", ""), ("big.sum()\n1 / 0", ""), ("back = big", "-o back")):
        book.run("big = np.ones(10**6); weakref.finalize(big, freed.append, 1)")
        book.isolated(body, line)
        book.run("big = back = None")
    freed = book.run("len(freed)").value
    book.run("gc.enable()")

    assert freed == "3"


def test_what_a_job_reads_is_let_go_of_when_it_is_sent(book: Notebook) -> None:
    memory = "import os, psutil; print(psutil.Process().memory_info().rss >> 20)"
    book.run("import numpy as np; big = np.ones(200 * 2**20 // 8)")
    before = int(book.run(memory).stream())
    book.isolated("print('has it')\nimport time\ntime.sleep(60)\nbig", "--detach")
    book.run("job = _")
    until(book.calls)
    until(lambda: int(book.run(memory).stream()) < before + 100)  # MiB; a copy is 200
    state = book.run("job.done()").value
    book.run("job.stop(); big = None")

    assert state == "False"


def test_a_class_that_its_own_methods_change_is_said(book: Notebook) -> None:
    book.run("class Model:\n    made = 0\n    def __init__(self): Model.made += 1\nmodel = Model()")

    assert "Model stays in its process: it is a class of the notebook" in book.isolated("Model()").closing
    assert "Model stays" in book.isolated("model.__init__()").closing
    assert "Model" not in book.isolated("model.made").closing
    assert "Model stays in its process: it is a class of the notebook" in book.isolated("Model.made += 1").closing


def test_names_in_a_query_are_sent_and_others_can_be_added(book: Notebook) -> None:
    book.run("import pandas as pd\ndf, cutoff = pd.DataFrame({'a': [1, 2, 3]}), 1\nword = 'cutoff'")

    book.run("df['b'] = 3")
    assert book.isolated("len(df.query('a > @cutoff'))").value == "2"
    assert "Changed" not in book.isolated("df._consolidate_inplace()").closing  # which stores the same otherwise
    assert "Changed only there: df." in book.isolated("df.loc[0, 'a'] = 9").closing
    missed = book.isolated("len(df[df.a > eval(word)])")
    assert missed.error["ename"] == "NameError"
    assert "The notebook has cutoff, which the cell's text does not name. To send it too: -i +cutoff" in missed.closing
    assert book.isolated("len(df[df.a > eval(word)])", "-i +cutoff").value == "2"
    assert "KeyError" in (by_key := book.isolated("globals()['word']")).text
    assert "-i +word" in by_key.closing


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_job_whose_process_is_ended_from_outside_is_stopped(book: Notebook, number: str, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    book.isolated(f"import time\nopen({str(begun)!r}, 'w').close()\nwhile True: time.sleep(0.1)", "--detach")
    book.run("job = _")
    until(begun.exists)
    book.run(f"import os, signal\nos.kill(job.status().pid, signal.{number})")
    said = book.run("job.exception(timeout=240)").value
    state = book.run("job.status().state").value

    assert state == "'stopped'", said
