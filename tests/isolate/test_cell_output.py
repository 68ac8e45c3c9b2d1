"""What an isolated cell shows, and when: as it is printed, from Python and C, and displays as a plain cell's."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.isolate.notebook import LIGHT, Notebook, Ran, marks, waits_for
from tests.isolate.test_jobs import later
from tests.slack import SLACK


def pieces(ran: Ran) -> list[tuple[str, str]]:
    """Return the outputs in order, each with its kind; the text of one stream is put together until a display comes."""
    found: list[tuple[str, str]] = []
    for kind, content in ran.messages:
        if kind == "stream" and found and found[-1][0] == "stream":
            found[-1] = ("stream", found[-1][1] + content["text"])
        elif kind == "stream":
            found.append((kind, content["text"]))
        elif kind == "display_data":
            found.append((kind, content["data"]["text/plain"]))
    return found


def test_a_training_bar_moves_while_it_runs(book: Notebook, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    ran = book.isolated(
        "import numpy as np, pathlib, time, keras\n"
        "class Waits(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        f"        while batch == 5 and not pathlib.Path({str(seen)!r}).exists(): time.sleep(0.01)\n"
        "model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])\n"
        "model.compile(loss='mse', optimizer='sgd')\n"
        "history = model.fit(np.ones((320, 3)), np.ones((320, 4)), batch_size=32, callbacks=[Waits()])",
        "-o history --growth",
        heard=marks("/10", seen),
    )

    assert ran.status == "ok", ran.text
    assert "10/10" in ran.stream()
    assert "'loss'" in book.run("history.history").value


def test_output_of_c_arrives_in_its_own_cell_while_that_goes_on(book: Notebook, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = book.isolated(
        "import os, ctypes\nos.write(2, b'first: error of C\\n')\n"
        "libc = ctypes.CDLL(None)\nlibc.puts(b'first: line of C')\nimport subprocess\n"
        f"subprocess.run(['sh', '-c', 'echo first: a child'])\n{waits_for(go)}",
        heard=marks("first: line of C", go),
    )
    second = book.isolated("import os\nos.write(2, b'second\\n');")

    assert "first: error of C" in first.stream("stderr")
    assert "first: line of C" in first.stream()
    assert "first: a child" in first.stream()
    assert second.stream("stderr") == "second\n"


def test_text_and_displays_come_in_their_order(book: Notebook) -> None:
    ran = book.isolated(
        "from IPython.display import display, HTML\nimport os\n"
        "for n in range(20):\n    print('text', n)\n    os.write(1, b'of C\\n')\n    display(HTML(f'<b>{n}</b>'))"
    )
    said = pieces(ran)[:-1]

    assert [kind for kind, _ in said] == ["stream", "display_data"] * 20
    assert [text for kind, text in said if kind == "stream"] == [f"text {n}\nof C\n" for n in range(20)]


def test_a_figure_and_a_table_are_shown_as_by_a_plain_cell(book: Notebook) -> None:
    figure = "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 3, 2]);"
    table = "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"
    plain, ours = book.run(figure), book.isolated(figure)
    one, two = book.run(table), book.isolated(table)

    image = ours.shown()[0]["image/png"]
    assert image == plain.shown()[0]["image/png"]
    assert base64.b64decode(image).startswith(b"\x89PNG")
    assert two.shown("execute_result") == one.shown("execute_result")
    assert "<table" in two.shown("execute_result")[0]["text/html"]


def test_a_figure_that_is_the_value_is_shown_as_its_picture(book: Notebook) -> None:
    with Notebook(book.server, LIGHT) as other:  # in which nobody has imported matplotlib
        ran = other.isolated(
            "%matplotlib inline\nimport matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nplt.close()\nfig"
        )
        again = other.run("1 + 1")

    assert "image/png" in ran.shown("execute_result")[0]
    assert again.value == "2"


def test_a_display_is_updated_in_place_and_output_is_cleared(book: Notebook) -> None:
    ran = book.isolated(
        "from IPython.display import display, clear_output\n"
        "handle = display('one', display_id=True)\nhandle.update('two')\nclear_output(wait=True)"
    )
    shown = [(kind, content) for kind, content in ran.messages if "display_id" in content.get("transient", {})]

    assert [kind for kind, _ in shown] == ["display_data", "update_display_data"]
    assert shown[0][1]["transient"] == shown[1][1]["transient"]
    assert any(kind == "clear_output" and content["wait"] for kind, content in ran.messages)


def test_a_widget_shows_its_text(book: Notebook) -> None:
    shown = book.isolated(
        "import ipywidgets\nfrom IPython.display import display\ndisplay(ipywidgets.IntSlider(value=7))"
    )
    value = book.isolated("import ipywidgets\nipywidgets.IntSlider(value=7)")

    for ran in (shown, value):
        data = next(data for data in ran.shown() if "IntSlider" in data["text/plain"])
        assert data.keys() == {"text/plain"}
    assert value.value == ""


@pytest.mark.parametrize(
    ("body", "instead"),
    [("input('name?')", "ask in a cell before it"), ("x = 1\nbreakpoint()", "run it as a plain cell")],
)
def test_asking_for_input_and_stopping_for_a_debugger_are_refused_in_words(
    book: Notebook, body: str, instead: str
) -> None:
    ran = book.isolated(body)

    assert ran.error["ename"] == "StdinNotImplementedError"
    assert instead in ran.error["evalue"]
    assert "bdb.py" not in ran.traceback


def test_what_forked_workers_display_is_shown_and_nothing_waits_for_another(book: Notebook) -> None:
    ran = book.isolated(
        "import multiprocessing, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "def work(number):\n"
        "    display(f'worker {number}')\n"
        "    return number\n"
        "with multiprocessing.get_context('fork').Pool(3) as pool:\n"
        "    pool.map(work, range(6), chunksize=1)\n"
        "    pool.close()\n"
        "    pool.join()\n"
        "display('after')",
        f"--timeout {30 * SLACK}s",
    )

    assert ran.status == "ok"
    assert sorted(text for _, text in pieces(ran))[:7] == ["'after'", *(f"'worker {number}'" for number in range(6))]


ON = """
from tfgpu_magic import isolated
import threading
def on():
    threading.Thread(target=lambda: [display(n) for n in range(300)]).start()
    return "done"
"""


@pytest.mark.parametrize("line", ["%%tf_gpu isolate --timeout 60s\non()", "isolated(timeout='60s')(on)()"])
def test_a_thread_that_displays_on_takes_no_message_of_the_end(book: Notebook, line: str) -> None:
    book.run(ON)
    ran = book.run(line)

    assert ran.value == "'done'"
    assert [text for kind, text in pieces(ran) if kind == "display_data"][:300] == [str(n) for n in range(300)]
    assert ran.stream("stderr") == ""


DRAW = """
from tfgpu_magic import isolated
from IPython.display import HTML, display
import matplotlib.pyplot as plt
@isolated
def draw(left_open=False):
    print('text')
    display(HTML('<b>bold</b>'))
    plt.plot([1, 3, 2])
    if not left_open:
        plt.show()
    display('after')
"""


@pytest.mark.parametrize("left_open", [False, True])
def test_what_an_isolated_function_displays_is_shown_as_by_a_plain_cell(book: Notebook, left_open: bool) -> None:
    book.run("%matplotlib inline" + DRAW)
    plain, ours = book.run(f"draw.__wrapped__({left_open})"), book.run(f"draw({left_open})")

    assert ours.status == "ok", ours.text
    assert ours.shown() == plain.shown()
    assert [sorted(data) for data in ours.shown()].count(["image/png", "text/plain"]) == 1
    assert pieces(ours) == pieces(plain)


def test_what_a_submitted_call_shows_and_prints_is_seen_below_the_cell_that_submitted_it(book: Notebook) -> None:
    speak = "print('at once'); display(1); time.sleep(1.5); print('later'); display(HTML('<i>later</i>'))"
    book.run(f"import time\ndef speak():\n    {speak}")
    book.run("from IPython.display import HTML, display\nfrom tfgpu_magic import IsolatedExecutor")
    request = book.client.execute("executor = IsolatedExecutor(1, gpus=0); spoken = executor.submit(speak)")
    heard = later(book, request, "spoken.result()")
    shown = [content["data"] for kind, content in heard if kind == "display_data"]

    assert [data["text/plain"] for data in shown] == ["1", "<IPython.core.display.HTML object>"]
    assert shown[1]["text/html"] == "<i>later</i>"
    assert "".join(content["text"] for kind, content in heard if kind == "stream") == "at once\nlater\n"
    captured = book.run("%%capture kept\nexecutor.submit(print, 'captured').result()")
    assert captured.stream() == ""
    assert book.run("kept.stdout").value == repr("captured\n")


def test_names_of_a_function_are_the_notebooks_and_not_those_of_an_ipython(book: Notebook) -> None:
    ran = book.run("from tfgpu_magic import isolated\n_, In = 'mine', 'too'\nisolated(lambda: (_, In))()")

    assert ran.value == "('mine', 'too')"
