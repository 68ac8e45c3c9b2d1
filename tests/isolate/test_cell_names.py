"""Names and values of isolated cells, there and back, in a real kernel with real TensorFlow; and what they raise."""

from __future__ import annotations

import re
import textwrap

import pytest

from tests.isolate.notebook import Notebook, Ran


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


def test_what_a_cell_may_read_and_cannot_be_sent_is_an_error_only_where_it_is_used(book: Notebook) -> None:
    book.run("import threading; lock = threading.Lock()")
    unused = book.isolated("if len('ab') == 3: lock.acquire()\ndef use(): return lock.locked()\n'went on'")
    used = book.isolated("got = 1\nif got: lock.acquire()", "-o got,lock")

    assert unused.value == "'went on'", unused.text
    assert used.error["ename"] == "Unpicklable"
    assert used.error["evalue"].startswith("lock cannot be sent to another process: a _thread.lock cannot be pickled")
    assert "----> 3 if got: lock.acquire()" in used.traceback
    assert "lock" not in used.closing  # the notebook's own is as it was
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
    assert re.search(rf'<ipython-input-{ran.number}-\w+>("?, line |:)2\b', ran.traceback), ran.traceback
    assert "def f(:" in ran.traceback
    assert "ChildTraceback" not in ran.traceback
