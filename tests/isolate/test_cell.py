"""Isolated cells in a real kernel with real TensorFlow: what they give back, bring back and show."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.isolate.notebook import Notebook, Ran, notebook
from tests.jupyter import until
from tfgpu_magic.simgpu import Machine

MIB, GIB = 2**20, 2**30
CONTEXT = 256 * MIB

FILL = """
import tensorflow as tf
big = [tf.zeros((256, 2**20), tf.float32) for _ in range(6)]  # 6 GiB of 8
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine.create("1x8GiB") as machine:
        yield machine


@pytest.fixture(scope="module")
def book(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with notebook(machine, tmp_path_factory.mktemp("home")) as one:
        yield one


def held(machine: Machine, book: Notebook) -> int:
    """What the driver says the kernel and all its children hold."""
    return sum(machine.held(pid=pid) for pid in (book.pid, *(child.pid for child in book.family())))


def test_a_cell_that_filled_a_gpu_gives_all_of_it_back(book: Notebook, machine: Machine) -> None:
    ran = book.isolated(FILL)

    assert ran.status == "ok", ran.text
    assert "peak 6.1 GiB in use on GPU 0, 6.4 GiB of GPU 0 given back." in ran.closing
    assert held(machine, book) == 0
    assert sum(process.held or 0 for process in machine.processes()) == 0
    assert book.run("import sys; 'tensorflow' in sys.modules").value == "False"


def test_the_next_notebook_can_take_the_gpu(book: Notebook, machine: Machine) -> None:
    book.isolated(FILL)
    with Notebook(book.server) as other:
        ran = other.run(FILL)

        assert ran.status == "ok"
        assert machine.held(pid=other.pid) > 6 * GIB


def test_a_kernel_that_has_imported_tensorflow_is_not_woken(book: Notebook) -> None:
    with Notebook(book.server, "import tensorflow as tf") as one:
        ran = one.isolated("x = tf.constant([1.0, 2.0])\nv = tf.Variable([3.0])\nx", "-o x,v")
        stage = one.run("from tfgpu_magic.config.runtime import current_stage; print(current_stage().name)").stream()
        kinds = one.run("print(type(x).__name__, type(v).__name__)").stream()

    assert ran.value.startswith("array(")
    assert stage.strip() == "IMPORTED"
    assert kinds.strip() == "ndarray ndarray"


def test_twenty_cells_leave_nothing(book: Notebook, machine: Machine) -> None:
    figures = (
        "import os, psutil, gc, tempfile, threading; gc.collect(); me = psutil.Process()\n"
        "print(len(os.listdir('/proc/self/fd')), threading.active_count(), len(me.children(recursive=True)), "
        "me.memory_info().rss >> 20, len(os.listdir(tempfile.gettempdir())), "
        "len(os.listdir(os.environ['TFGPU_MAGIC_DIR'])), "
        "open('/proc/self/maps').read().count('memfd'))"
    )
    cell = (
        "import time, tensorflow as tf, numpy as np\nx = tf.zeros((1024, 1024))\ntime.sleep(0.3)\n"
        "y = np.ones((1024, 1024))"
    )
    for _ in range(3):
        book.isolated(cell, "-o y --growth")
    before = [int(part) for part in book.run(figures).stream().split()]
    for _ in range(20):
        assert book.isolated(cell, "-o y --growth").status == "ok"
    after = [int(part) for part in book.run(figures).stream().split()]

    assert after[0] - before[0] < 5  # descriptors; ZeroMQ opens one now and then
    assert after[1:3] == before[1:3]  # threads, processes
    assert after[3] - before[3] < 10  # MiB
    assert after[4:] == before[4:]  # files, on the board too, and memory that was sent
    assert held(machine, book) == 0


def test_the_last_expression_is_the_cells_value(book: Notebook) -> None:
    ran = book.isolated("import numpy as np\nnp.arange(3) * 2")

    assert ran.value == "array([0, 2, 4])"
    assert book.run("_").value == "array([0, 2, 4])"
    assert book.isolated("1 + 1;").value == ""


def test_names_that_the_cell_reads_go_along_and_those_asked_for_come_back(book: Notebook) -> None:
    book.run("scale = 3\ndef times(x):\n    return x * scale\nimport math as m")
    ran = book.isolated("result = times(2) + m.floor(2.5)\nother = [result]\nclass Kind: pass", "-o result")

    assert book.run("result").value == "8"
    assert "Gone with its process: other, Kind. To bring back: -o other,Kind" in ran.closing
    assert "NameError" in book.run("other").text


def test_names_that_who_does_not_list_go_along_too(book: Notebook) -> None:
    book.run("get_ipython().push({'of_a_startup_file': 5}, interactive=False)")
    book.run("40 + 2")

    assert book.isolated("_ + 1, max(Out) in Out, of_a_startup_file").value == "(43, True, 5)"
    assert book.isolated("open('/dev/null').read(), type(get_ipython()).__name__").value == "('', 'CellShell')"


def test_a_function_of_the_notebook_sees_what_the_cell_binds_anew(book: Notebook) -> None:
    book.run("base = 1\ndef plus(x):\n    return x + base\ndef count():\n    global calls\n    calls += 1\ncalls = 0")
    ran = book.isolated("base = 100\ncount()\ncount()\nplus(1), calls")

    assert ran.value == "(101, 2)"
    assert book.run("base, calls").value == "(1, 0)"


def test_a_class_of_the_notebook_is_the_same_class_when_its_instance_comes_back(book: Notebook) -> None:
    book.run("class Point:\n    def __init__(self, x):\n        self.x = x\np = Point(1)")
    book.isolated("q = Point(p.x + 1)\nassert isinstance(p, Point)", "-o q")

    assert book.run("isinstance(q, Point), q.x").value == "(True, 2)"


def test_what_two_names_share_they_share_there_and_when_they_are_back(book: Notebook) -> None:
    book.run("one = [1]; two = [one]")
    ran = book.isolated("one.append(2)\ntwo[0] is one", "-o one,two")

    assert ran.value == "True"
    assert book.run("two[0] is one, one").value == "(True, [1, 2])"


def test_arrays_come_back_writable(book: Notebook) -> None:
    book.isolated("import numpy as np, tensorflow as tf\na = np.ones(10**6)\nt = tf.ones((1000, 1000))", "-o a,t")

    assert book.run("a += 1; t += 1; a[0], a.flags.writeable, t.flags.writeable").value.endswith("True, True)")


def test_what_cannot_be_sent_is_refused_by_name_before_the_cell_runs(book: Notebook) -> None:
    book.run("import threading; lock = threading.Lock(); nest = {'in': [lock]}")
    ran = book.isolated("print('ran')\nlock, nest")

    assert ran.status == "error"
    assert ran.stream() == ""
    assert "lock cannot be sent to another process: a _thread.lock cannot be pickled" in ran.stream("stderr")
    assert "nest cannot be sent to another process: a _thread.lock, in nest['in'][0]" in ran.stream("stderr")
    assert book.isolated("print('ran')\nif False: lock", "-i -").stream() == "ran\n"


def test_what_cannot_be_made_again_in_its_process_is_told(book: Notebook) -> None:
    book.run("class Odd:\n    def __reduce__(self):\n        return int, ('x',)\nodd = Odd()")
    ran = book.isolated("print('ran')\nodd")

    assert "ran\n" not in ran.stream()
    assert "What the cell reads cannot be made again in its process (ValueError: invalid lit" in ran.stream("stderr")


def test_what_cannot_come_back_is_said_by_name_and_all_else_comes(book: Notebook) -> None:
    ran = book.isolated(
        "import threading, tensorflow as tf\nlock = threading.Lock()\nds = tf.data.Dataset.range(3)\nn = 1\nlock",
        "-o lock,ds,n,none",
    )

    assert ran.status == "ok"
    assert book.run("n").value == "1"
    assert "lock stays in its process: lock cannot be sent" in ran.closing
    assert "ds stays in its process: ds: A tf.data.Dataset cannot leave the process" in ran.closing
    assert "list(ds.as_numpy_iterator())" in ran.closing
    assert "Its value stays in its process" in ran.closing
    assert "Not there to bring back: none." in ran.closing
    assert any("_thread.lock" in data["text/plain"] for data in ran.shown())  # the value is seen all the same


def test_a_keras_model_comes_back_as_a_handle_that_loads_on_demand(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.isolated(
            "import tensorflow as tf\nmodel = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4)])\n",
            "-o model --growth",
        )
        before = one.run("import sys; print(model.parameters, 'tensorflow' in sys.modules)").stream()
        after = one.run("print(model.load().count_params())").stream()

    assert before.split() == ["16", "False"]
    assert after.strip() == "16"


def test_an_error_is_its_own_type_and_shows_the_cells_line_as_a_plain_cell_does(book: Notebook) -> None:
    body = "def inner():\n    raise KeyError('missing')\n\ninner()"
    plain, ours = book.run(f"# a comment\n{body}"), book.isolated(body)

    assert (ours.error["ename"], ours.error["evalue"]) == (plain.error["ename"], plain.error["evalue"])

    def lines(text: str) -> list[str]:
        """Each frame's head without the cell's number, and the line that the arrow points at."""
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


def test_what_was_bound_before_an_error_comes_back(book: Notebook) -> None:
    ran = book.isolated("got = [1, 2]\nraise ValueError('later')", "-o got")

    assert ran.error["ename"] == "ValueError"
    assert book.run("got").value == "[1, 2]"


def test_a_value_before_an_error_is_seen(book: Notebook) -> None:
    book.run("get_ipython().ast_node_interactivity = 'all'")
    ran = book.isolated("'seen'\n1 / 0")
    book.run("get_ipython().ast_node_interactivity = 'last_expr'")

    assert ran.shown()[0]["text/plain"] == "'seen'"
    assert ran.error["ename"] == "ZeroDivisionError"


@pytest.mark.parametrize("leave", ["import sys; sys.exit(3)", "exit()"])
def test_a_cell_that_leaves_ends_and_the_notebook_does_not(book: Notebook, leave: str) -> None:
    ran = book.isolated(f"got = 1\n{leave}", "-o got")

    assert ran.error["ename"] == "SystemExit"
    assert ran.stream("stderr").count("UserWarning: To exit") == 1
    assert book.run("got").value == "1"


def test_a_magic_that_is_not_there_is_told_once(book: Notebook) -> None:
    assert book.isolated("%nowhere").stream("stderr") == "UsageError: Line magic function `%nowhere` not found.\n"


def test_a_syntax_error_is_one_and_ends_with_its_line(book: Notebook) -> None:
    ran = book.isolated("def f(:\n    pass")

    assert ran.error["ename"] == "SyntaxError"
    assert ran.traceback.rstrip().endswith("SyntaxError: invalid syntax")
    assert f"<ipython-input-{ran.number}-" in ran.traceback
    assert ", line 2" in ran.traceback or ":2" in ran.traceback
    assert "def f(:" in ran.traceback
    assert "ChildTraceback" not in ran.traceback


def test_magics_shell_lines_and_await_work_as_in_any_cell(book: Notebook) -> None:
    book.run("word = 'from the notebook'")
    ran = book.isolated(
        "import asyncio\nfiles = !echo listed\n!echo shell $word\n%env TFGPU_TEST=1\nawait asyncio.sleep(0.01)\n"
        "import os\nfiles, os.environ['TFGPU_TEST']"
    )

    assert "shell from the notebook" in ran.stream()
    assert ran.value == "(['listed'], '1')"
    assert book.isolated("%%time\nprint('timed')").stream().startswith("timed\nCPU times")


def test_a_handle_that_is_taken_for_the_model_says_how_to_get_that(book: Notebook) -> None:
    book.isolated("import keras\nm = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])", "-o m --growth")
    ran = book.isolated("m.evaluate(1)")
    after = book.isolated("m.load().count_params()", "--growth")

    assert "load() makes the model here" in ran.error["evalue"]
    assert after.value == "16"


def test_it_works_within_capture(book: Notebook) -> None:
    book.run("from IPython.utils.capture import capture_output")
    ran = book.run(
        "with capture_output() as seen:\n    get_ipython().run_cell_magic('tf_gpu', 'isolate', 'print(1)')\nseen.stdout"
    )

    assert ran.value == "'1\\n'"


def test_the_policy_is_in_force_by_the_drivers_account(book: Notebook, machine: Machine) -> None:
    ran = book.isolated("import tensorflow as tf\nx = tf.constant(1.0) + 1", "--limit 1GiB")

    assert "1.2 GiB of GPU 0 given back" in ran.closing  # the limit and the context
    assert "not applied" in book.isolated("1", "--limit 12GiB").text.lower()
    assert "is not a word" in book.isolated("1", "limti 1GiB").text


def test_a_refusal_says_what_fits_as_it_is_said_above_a_cell(book: Notebook) -> None:
    ran = book.isolated("1", "limit 0=1GiB 5=1GiB")

    assert "For those that are:   %%tf_gpu isolate limit 0=1GiB" in ran.stream("stderr")


def test_a_refusal_says_whose_policy_it_was(book: Notebook) -> None:
    with Notebook(book.server, "%tf_gpu limit 5GiB") as one:
        book.run("%%tf_gpu isolate --detach --limit 4GiB\nimport tensorflow as tf, time\ntf.zeros(9)\ntime.sleep(60)")
        until(lambda: "4.2 GiB" in book.run("%tf_gpu jobs").shown()[0]["text/plain"])
        ran = one.isolated("1")
        other = one.isolated("1", "default")
        book.run("%tf_gpu jobs stop 1")

    assert "The notebook's own `limit 5GiB` holds for its isolated cells too" in ran.stream("stderr")
    assert other.value == "1"


def test_loading_the_extension_in_the_cell_leaves_its_policy_as_it_is(book: Notebook) -> None:
    with Notebook(book.server, "import os; os.environ['TFGPU_POLICY'] = 'limit 3GiB'") as one:
        ran = one.isolated("%load_ext tfgpu_magic\nimport tensorflow as tf\nx = tf.constant(1.0) + 1", "--limit 1GiB")

    assert "1.2 GiB of GPU 0 given back" in ran.closing  # the limit and the context


def test_the_notebooks_own_policy_holds_for_its_cells_too(book: Notebook) -> None:
    with Notebook(book.server, "%tf_gpu limit 2GiB") as one:
        ran = one.isolated("import tensorflow as tf\nx = tf.constant(1.0) + 1")
        other = one.isolated("import tensorflow as tf\nx = tf.constant(1.0) + 1", "--growth")

    assert f"{(2 * GIB + CONTEXT) / GIB:.1f} GiB of GPU 0 given back" in ran.closing
    assert "MiB of GPU 0 given back" in other.closing


def test_mixed_precision_holds_in_isolated_cells_and_calls_too(book: Notebook) -> None:
    with Notebook(book.server, "import keras, sys\nfrom tfgpu_magic import isolated") as one:
        one.run("keras.config.set_dtype_policy('mixed_float16'); keras.config.set_image_data_format('channels_first')")
        cell = one.isolated(
            "import keras\nlayer = keras.layers.Dense(1)\nlayer.compute_dtype, keras.config.image_data_format()"
        )
        call = one.run("isolated(lambda: keras.layers.Dense(1).compute_dtype)()")
        stage = one.run("from tfgpu_magic.config.runtime import current_stage; print(current_stage().name)").stream()
    plain = book.isolated("import keras\nkeras.layers.Dense(1).compute_dtype")

    assert (cell.value, call.value, plain.value) == ("('float16', 'channels_first')", "'float16'", "'float32'")
    assert stage.strip() == "IMPORTED"


def test_the_environment_and_the_directory_are_the_notebooks(
    book: Notebook, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("there")
    (folder / "mine.py").write_text("answer = 42\n")
    book.run(f"import os; os.environ['TFGPU_TEST'] = 'said'; there = os.getcwd(); os.chdir({str(folder)!r})")
    ran = book.isolated("import os, mine\nos.environ['TFGPU_TEST'], os.getcwd(), mine.answer")
    book.run("os.chdir(there)")

    assert ran.value == f"('said', '{folder}', 42)"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-i nowhere", "-i nowhere: this notebook has no 'nowhere'."),
        ("--timeot 3s", "Did you mean '--timeout'?"),
        ("--timeout 3", "3 of what? Write 3s or 3m."),
        ("--gpus none", "--gpus is a number from 1 to 64, not 'none'."),
        ("-o 1x", "'1x' is not a name."),
    ],
)
def test_a_line_that_cannot_be_read_says_how_to_write_it(book: Notebook, line: str, said: str) -> None:
    ran = book.isolated("print('ran')", line)

    assert said in ran.stream("stderr")
    assert "ran\n" not in ran.stream()


def test_unloading_the_extension_lets_go_of_the_process_that_cells_start_from(book: Notebook) -> None:
    with Notebook(book.server) as one:
        assert one.isolated("1").value == "1"
        assert one.family()
        one.run("%unload_ext tfgpu_magic")

        assert one.family() == []
        assert one.run("%load_ext tfgpu_magic").status == "ok"
        assert one.isolated("2").value == "2"


def test_only_isolate_stands_above_a_cell(book: Notebook) -> None:
    assert "'limit' stands in a line of its own" in book.run("%%tf_gpu limit 2GiB\nprint(1)").stream("stderr")
    assert "stands above a cell" in book.run("%tf_gpu isolate").stream("stderr")
