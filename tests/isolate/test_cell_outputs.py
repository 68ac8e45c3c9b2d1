"""What `-o` asks for, in a real kernel with real TensorFlow: it comes home, or the cell ends with an error."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.isolate.notebook import Notebook

MODEL = """
import keras
class VAE(keras.Model):
    def __init__(self, width):
        super().__init__()
        self.inner = keras.layers.Dense(width)
    def call(self, x): return self.inner(x)
    def get_config(self): raise NotImplementedError
vae = VAE(2)
vae(keras.ops.ones((1, 3)))
"""


def test_a_model_that_keras_cannot_save_is_an_error_and_its_weights_have_come(book: Notebook) -> None:
    book.run("vae = 'of yesterday'")
    ran = book.isolated(f"{MODEL}history = [1.0]", "-o vae,history")
    there = book.run("[part.shape for part in vae], history").value

    assert ran.status == "error"
    assert ran.error["ename"] == "Unpicklable"
    assert "The Keras model 'vae' cannot be saved whole" in ran.error["evalue"]
    assert "Its weights have come in vae, as the list that set_weights() takes." in ran.error["evalue"]
    assert there == "([(3, 2), (2,)], [1.0])"


def test_a_call_that_returns_such_a_model_keeps_its_weights_with_the_error(book: Notebook) -> None:
    body = textwrap.indent(MODEL, "    ")
    book.run(f"from tfgpu_magic import isolated\ndef train():{body}    return {{'model': vae, 'epochs': 3}}")
    ran = book.run("isolated(train)()")
    kept = book.run("import sys; found = sys.last_value.value(); len(found['model']), found['epochs']").value

    assert ran.error["ename"] == "Unpicklable"
    assert "value() of this error" in ran.error["evalue"]
    assert kept == "(2, 3)"


def test_what_cannot_come_back_is_an_error_by_name_and_all_else_has_come(book: Notebook) -> None:
    book.run("n = lock = ds = opt = 'old'")
    ran = book.isolated(
        "import keras, threading, tensorflow as tf\nlock = threading.Lock()\nds = tf.data.Dataset.range(3)\n"
        "opt = keras.optimizers.SGD()\nn = 1\nif n == 2: none = 1\nlock",
        "-o lock,ds,opt,n,none",
    )

    assert ran.error["ename"] == "Unpicklable"
    for said in (
        "lock stays in its process: lock cannot be sent",
        "Bring back numpy arrays",
        "ds stays in its process: ds: tensorflow.",
        "opt stays in its process: opt: keras.",
        "none stays in its process: the cell has not bound none",
        "The notebook's own lock, ds, opt are as before",
    ):
        assert said in ran.error["evalue"]
        assert said not in ran.closing  # it is said once
    assert "Its value stays in its process" in ran.closing
    assert any("_thread.lock" in data["text/plain"] for data in ran.shown())  # the value is seen all the same
    assert book.run("n, lock, ds, opt").value == "(1, 'old', 'old', 'old')"


def test_what_a_cell_raises_goes_before_what_did_not_come(book: Notebook) -> None:
    ran = book.isolated("import threading\nlock = threading.Lock()\n1 / 0", "-o lock,none")

    assert ran.error["ename"] == "ZeroDivisionError"
    assert "lock stays in its process" in ran.closing
    assert "none stays in its process" in ran.closing


def test_a_name_that_nothing_binds_is_refused_before_the_cell_runs(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("had = 1")
        refused = one.isolated("print('ran')\nmodel = 1", "-o modle")
    book.run("def state():\n    global made_there\n    made_there = 5\nhad = 1")
    bound = [
        book.isolated("state()", "-o made_there"),
        book.isolated("exec('by_' + 'exec = 1')", "-o by_exec"),
        book.isolated("from math import *", "-o floor"),
        book.isolated("%matplotlib inline\nimport matplotlib\nget_ipython().push({'pus' + 'hed': 1})", "-o pushed"),
        book.isolated("if len('a') == 1: branch = 1", "-o branch"),
        book.isolated("!true\nhad", "-o had"),
        book.isolated("out = !echo 1", "-o out"),
    ]

    assert refused.status == "error"
    said = "-o modle: nothing in this cell or notebook binds 'modle'. Did you mean -o model?"
    assert said in refused.stream("stderr")
    assert "ran\n" not in refused.stream()
    assert [ran.text for ran in bound if ran.status != "ok"] == []


def test_a_cell_that_fails_leaves_what_it_has_not_changed_as_it_is(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("%tf_gpu growth\nimport tensorflow as tf")
        one.run("t = tf.constant([1.0]); changed = [1]; same = [2]; it = same")
        ran = one.isolated("changed.append(2)\nt, same\n1 / 0", "-o t,changed,same")
        there = one.run("type(t).__name__, changed, same is it").value

    assert ran.error["ename"] == "ZeroDivisionError"
    assert there == "('EagerTensor', [1, 2], True)"


def test_a_job_whose_name_cannot_come_home_raises_and_one_with_a_value_says_so(book: Notebook) -> None:
    book.run("lock = 'old'")
    book.run("%%tf_gpu isolate --detach -o lock,n\nimport threading\nlock, n = threading.Lock(), 5\nprint('done')")
    ran = book.run("job = _\njob.result()")
    book.run("%%tf_gpu isolate --detach -o lock\nimport threading\nlock = threading.Lock()\n7")
    valued = book.run("job = _\njob.result()")

    assert ran.error["ename"] == "Unpicklable"
    assert "lock stays in its process" in ran.error["evalue"]
    assert book.run("lock, n").value == "('old', 5)"
    assert valued.error["ename"] == "Unpicklable"
    assert book.run("job.exception().value()").value == "7"


def test_a_mapped_array_comes_home_mapped(book: Notebook, tmp_path: Path) -> None:
    file = tmp_path / "file"
    book.run(f"import numpy as np\nmm = np.memmap({str(file)!r}, 'float32', 'w+', shape=(30_000,))")
    ran = book.isolated("mm[0] = 7\nbest = {'rows': mm[1:], 'scores': [1]}", "-o mm,best")
    book.run("mm[1] = 9; mm.flush(); best['rows'][1] = 11; best['rows'].flush()")
    read = book.run(f"np.fromfile({str(file)!r}, 'float32')[:3].tolist()").value

    assert ran.status == "ok"
    assert read == "[7.0, 9.0, 11.0]"
