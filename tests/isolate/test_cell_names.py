"""Names and values of isolated cells, there and back, in a real kernel with real TensorFlow; and what they raise."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.isolate.notebook import Notebook, Ran


def test_the_last_expression_is_the_cells_value_and_names_that_who_does_not_list_go_along(book: Notebook) -> None:
    book.run("get_ipython().push({'of_a_startup_file': 5}, interactive=False)")
    book.run("40 + 2")
    ran = book.isolated("import numpy as np\nnp.array([_ + 1, max(Out) in Out, of_a_startup_file])")

    assert ran.value == book.run("_").value == "array([43,  1,  5])"
    assert book.isolated("1 + 1;").value == ""
    assert book.isolated("open('/dev/null').read(), type(get_ipython()).__name__").value == "('', 'CellShell')"


def test_names_that_the_cell_reads_go_along_and_those_asked_for_come_back(book: Notebook) -> None:
    book.run("scale = 3\ndef times(x):\n    return x * scale\nimport math as m")
    ran = book.isolated("result = times(2) + m.floor(2.5)\nother = [result]\nclass Kind: pass", "-o result")

    assert book.run("result").value == "8"
    assert "Gone with its process: other, Kind. To bring back: -o other,Kind" in ran.closing
    assert "NameError" in book.run("other").text


ONE_COPY = """
base, calls = 1, 0
def plus(x):
    global calls
    calls += 1
    return x + base
class Point:
    def __init__(self, x): self.x = x
p, one = Point(1), [1]
two = [one]
"""


def test_what_belongs_together_is_together_there_and_when_it_is_back(book: Notebook) -> None:
    book.run(ONE_COPY)
    ran = book.isolated(
        "base = 100\nq = Point(p.x + 1)\none.append(2)\nplus(1), calls, isinstance(p, Point), two[0] is one",
        "-o q,one,two",
    )

    assert ran.value == "(101, 1, True, True)"
    assert (
        book.run("base, calls, isinstance(q, Point), q.x, two[0] is one, one").value == "(1, 0, True, 2, True, [1, 2])"
    )


ODD = """
import threading
lock = threading.Lock()
nest = {'in': [lock]}
class Odd:
    def __reduce__(self): return int, ('x',)
odd, shared = Odd(), [1]
also = [shared]
"""


def test_what_cannot_be_sent_or_made_again_there_is_refused_by_name_before_the_cell_runs(book: Notebook) -> None:
    book.run(ODD)
    unsent, unmade = book.isolated("print('ran')\nlock, nest"), book.isolated("print('ran')\nodd, shared")

    assert (unsent.status, unsent.stream(), unmade.stream()) == ("error", "", "")
    for said in (
        "lock cannot be sent to another process: a _thread.lock cannot be pickled",
        "nest cannot be sent to another process: a _thread.lock, in nest['in'][0]",
    ):
        assert said in unsent.stream("stderr")
    assert "odd cannot be made again in the cell's process" in unmade.stream("stderr")
    assert "Make it in the cell" in unmade.stream("stderr")
    assert book.isolated("print('ran')\nif False: lock", "-i -").stream() == "ran\n"


def test_what_a_cell_may_read_is_an_error_only_where_it_is_used_and_takes_no_other_along(book: Notebook) -> None:
    book.run(ODD)
    unused = book.isolated(
        "if len('ab') == 3: print(odd, lock.acquire())\ndef use(): return lock.locked()\nalso[0] is shared"
    )
    unmade = book.isolated("if len('ab') == 2: print(odd)")
    unsent = book.isolated("got = 1\nif got: lock.acquire()", "-o got,lock")

    assert unused.value == "True", unused.text
    assert (unmade.error["ename"], unsent.error["ename"]) == ("Unpicklable", "Unpicklable")
    assert unmade.error["evalue"].startswith("odd cannot be made again in the cell's process (ValueError: invalid lit")
    assert unsent.error["evalue"].startswith("lock cannot be sent to another process: a _thread.lock cannot be pickled")
    assert "----> 3 if got: lock.acquire()" in unsent.traceback
    assert "lock" not in unsent.closing  # the notebook's own is as it was
    assert book.run("got, lock.locked()").value == "(1, False)"


def test_a_keras_model_comes_back_as_a_handle_that_loads_on_demand(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.isolated(
            "import tensorflow as tf\nmodel = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4)])\n",
            "-o model --growth",
        )
        before = one.run("import sys; print(model.parameters, 'tensorflow' in sys.modules)").stream()
        told = one.isolated("model.evaluate(1)").error["evalue"]
        after = one.run("print(model.load().count_params())").stream()

    assert before.split() == ["16", "False"]
    assert "load() makes the model here" in told
    assert after.strip() == "16"


def test_an_error_is_its_own_type_and_shows_the_cells_line_as_a_plain_cell_does(book: Notebook) -> None:
    body = "def inner():\n    raise KeyError('missing')\n\ninner()"
    plain, ours = book.run(f"# a comment\n{body}"), book.isolated(body)

    assert (ours.error["ename"], ours.error["evalue"]) == (plain.error["ename"], plain.error["evalue"])

    def lines(text: str) -> list[str]:
        """Return each frame's head without the cell's number, and the line that the arrow points at."""
        telling = [line for line in text.splitlines() if "----> " in line or line.startswith("Cell In[")]
        return [line.partition("], ")[2] or line for line in telling]

    def numbers(ran: Ran) -> set[int]:
        return {int(number) for number in re.findall(r"Cell In\[(\d+)\]", ran.traceback)}

    assert len(numbers(plain)) == 1
    assert numbers(ours) == {number + 1 for number in numbers(plain)}

    assert lines(ours.traceback) == lines(plain.traceback)
    assert f"Cell In[{ours.number}], line 5" in ours.traceback
    assert len(lines(ours.traceback)) == 4
    assert "tfgpu_magic" not in ours.traceback


def test_a_function_of_an_earlier_cell_is_shown_with_its_lines_in_a_traceback(book: Notebook) -> None:
    before = book.run("def broken(x):\n    # a comment\n    return 1 / x")
    ran = book.isolated("broken(0)")

    assert f"Cell In[{before.number}], line 3, in broken(x)" in ran.traceback
    assert "----> 3     return 1 / x" in ran.traceback


def test_the_traceback_of_a_recursion_is_made_without_a_search_of_all_modules_for_each_frame(book: Notebook) -> None:
    body = """
    import cProfile, pstats, tensorflow
    own, profile = get_ipython().showtraceback, cProfile.Profile()
    def counted(*args, **kwargs):
        profile.runcall(own, *args, **kwargs)
        print(pstats.Stats(profile).total_calls)
    get_ipython().showtraceback = counted
    def deep(n):
        return deep(n + 1)
    deep(0)
    """
    ran = book.isolated(textwrap.dedent(body))

    assert int(ran.stream()) < 3_000_000  # with the search 57 million
    assert "return deep(n + 1)" in ran.traceback


@pytest.mark.parametrize("leave", ["import sys; sys.exit(3)", "exit()"])
def test_a_cell_that_leaves_ends_and_the_notebook_does_not(book: Notebook, leave: str) -> None:
    ran = book.isolated(f"got = 1\n{leave}", "-o got")

    assert ran.error["ename"] == "SystemExit"
    assert ran.stream("stderr").count("UserWarning: To exit") == 1
    assert book.run("got").value == "1"


def test_what_is_shown_before_an_error_is_seen_and_a_magic_that_is_not_there_is_told_once(book: Notebook) -> None:
    book.run("get_ipython().ast_node_interactivity = 'all'")
    ran = book.isolated("'seen'\n1 / 0")
    book.run("get_ipython().ast_node_interactivity = 'last_expr'")

    assert ran.shown()[0]["text/plain"] == "'seen'"
    assert ran.error["ename"] == "ZeroDivisionError"
    assert book.isolated("%nowhere").stream("stderr") == "UsageError: Line magic function `%nowhere` not found.\n"


def test_a_syntax_error_is_one_and_ends_with_its_line(book: Notebook) -> None:
    ran = book.isolated("def f(:\n    pass")

    assert ran.error["ename"] == "SyntaxError"
    assert ran.traceback.rstrip().endswith("SyntaxError: invalid syntax")
    assert re.search(rf'<ipython-input-{ran.number}-\w+>("?, line |:)2\b', ran.traceback), ran.traceback
    assert "def f(:" in ran.traceback
    assert "ChildTraceback" not in ran.traceback


# What goes along: one odd value takes no other along.

LAYER = """
import keras
@keras.saving.register_keras_serializable()
class Scale(keras.layers.Layer):
    def call(self, x): return 2 * x
custom = keras.Sequential([keras.Input((3,)), Scale()])
"""


def test_cached_functions_go_along_and_come_home(book: Notebook) -> None:
    book.run(
        "import functools\nfrom tfgpu_magic import isolated\n"
        "@functools.cache\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "class Kind:\n    @functools.lru_cache(maxsize=7)\n    def size(self):\n        'Its size.'\n        return 3\n"
        "def train(): return fib(10)\nkind = Kind()"
    )
    ran = book.isolated(
        "@functools.lru_cache\ndef mine(): return fib(9)\n"
        "train(), fib(11), kind.size(), Kind.size.__doc__, Kind.size.cache_parameters()['maxsize']",
        "-o mine",
    )
    call = book.run("isolated(train)()").value

    assert ran.value == "(55, 89, 3, 'Its size.', 7)", ran.text
    assert call == "55"
    assert book.run("mine(), mine(), mine.cache_info().hits").value == "(34, 34, 1)"


def test_a_function_of_tensorflows_that_has_run_goes_along_as_one_that_has_not(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("%tf_gpu growth")
        one.run("import tensorflow as tf\n@tf.function(reduce_retracing=True)\ndef step(x):\n    return tf.shape(x)")
        one.run("step(tf.zeros([2])); step(tf.zeros([3]))")
        ran = one.isolated("step(tf.zeros([4])).numpy().tolist(), step.function_spec is not None")
        after = one.run("step.experimental_get_tracing_count()").value

    assert ran.value == "([4], True)", ran.text
    assert after == "2"


def test_a_model_that_was_trained_only_there_is_named_and_one_that_was_used_is_not(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("%tf_gpu growth\nimport keras\nnet = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2000)])")
        one.run("net.compile('sgd', 'mse'); large = keras.Sequential([keras.Input((3,)), keras.layers.Dense(10)])")
        used = one.isolated(
            "net.predict(keras.ops.ones((1, 3)), verbose=0).shape, large.count_params()", "visible none"
        ).closing
        trained = one.isolated(
            "net.fit(keras.ops.ones((1, 3)), keras.ops.ones((1, 2000)), verbose=0);", "visible none"
        ).closing

    assert "Changed" not in used
    assert "Changed only there: net. To bring back: -o net" in trained


def test_a_model_with_a_layer_of_the_notebook_goes_along(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("%tf_gpu growth")
        one.run(f"{LAYER}\nfrom tfgpu_magic import isolated")
        ran = one.isolated("type(custom.layers[-1]).__name__, custom.layers[-1].__class__ is Scale")
        call = one.run("isolated(lambda model: model.count_params())(custom)").text

    assert ran.value == "('Scale', True)", ran.text
    assert call == "0"


# What `-o` asks for comes home, or the cell ends with an error.

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
    body = textwrap.indent(MODEL, "    ")
    book.run(f"from tfgpu_magic import isolated\ndef train():{body}    return {{'model': vae, 'epochs': 3}}")
    call = book.run("isolated(train)()").error
    kept = book.run("import sys; found = sys.last_value.value(); len(found['model']), found['epochs']").value

    assert (call["ename"], kept) == ("Unpicklable", "(2, 3)")
    assert "value() of this error" in call["evalue"]
    assert ran.error["ename"] == "Unpicklable"
    assert "The Keras model 'vae' cannot be saved whole" in ran.error["evalue"]
    assert "Its weights have come in vae, as the list that set_weights() takes." in ran.error["evalue"]
    assert there == "([(3, 2), (2,)], [1.0])"


def test_a_name_that_nothing_binds_is_refused_before_the_cell_runs(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("had = 1")
        refused = one.isolated("print('ran')\nmodel = 1", "-o modle")
        nowhere = one.isolated("print('ran')", "-i nowhere")
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
    assert "-i nowhere: this notebook has no 'nowhere'." in nowhere.stream("stderr")
    assert "ran\n" not in refused.stream() + nowhere.stream()
    assert [ran.text for ran in bound if ran.status != "ok"] == []


def test_a_cell_that_fails_leaves_what_it_has_not_changed_as_it_is(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("%tf_gpu growth\nimport tensorflow as tf")
        one.run("t = tf.constant([1.0]); changed = [1]; same = [2]; it = same")
        ran = one.isolated("changed.append(2)\nt, same\n1 / 0", "-o t,changed,same")
        there = one.run("type(t).__name__, changed, same is it").value

    assert ran.error["ename"] == "ZeroDivisionError"
    assert there == "('EagerTensor', [1, 2], True)"


def test_a_mapped_array_comes_home_mapped(book: Notebook, tmp_path: Path) -> None:
    file = tmp_path / "file"
    book.run(f"import numpy as np\nmm = np.memmap({str(file)!r}, 'float32', 'w+', shape=(30_000,))")
    ran = book.isolated("mm[0] = 7\nbest = {'rows': mm[1:], 'scores': [1]}", "-o mm,best")
    book.run("mm[1] = 9; mm.flush(); best['rows'][1] = 11; best['rows'].flush()")
    read = book.run(f"np.fromfile({str(file)!r}, 'float32')[:3].tolist()").value

    assert ran.status == "ok"
    assert read == "[7.0, 9.0, 11.0]"
