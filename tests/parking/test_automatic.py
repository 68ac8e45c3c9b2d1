"""A notebook parks itself when no cell has run for a while, or only when another one finds no room then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jupyter import Notebook, reply_to
from tests.parking.notebooks import SLOW, Site, ask, digest_in, heard
from tests.processes import run
from tests.sizes import LITTLE, MIB
from tests.waiting import until
from tfgpu_magic.monitor.board import wanted

BEGIN = """
%tf_gpu growth --release
import hashlib, logging
import numpy as np, tensorflow as tf
variable = tf.Variable(tf.zeros(2**26))
variable.assign(np.random.default_rng(3).integers(1, 99, variable.shape).astype("float32"))
digest = lambda: hashlib.sha256(variable.numpy().tobytes()).hexdigest()
print(digest())
"""
HELD = 256 * MIB
"""What the variable takes."""


@pytest.fixture(scope="module")
def filled(site: Site) -> Iterator[tuple[Notebook, str]]:
    """Return a notebook with a variable on the GPU, and its digest."""
    notebook = Notebook(site.server, "auto.ipynb")
    yield notebook, digest_in(notebook.run(BEGIN))
    notebook.end()


@pytest.fixture(autouse=True)
def off(filled: tuple[Notebook, str]) -> Iterator[None]:
    yield
    assert filled[0].run("%tf_gpu park --auto off") == "This notebook is not parked by itself any more."


def test_it_is_parked_without_a_word_and_again_after_its_return(site: Site, filled: tuple[Notebook, str]) -> None:
    notebook, digest = filled
    said = notebook.run("%tf_gpu park --auto 500ms")
    assert said == "This notebook is parked by itself when no cell has run for 500ms."
    for _ in range(2):
        until(lambda: site.machine.held(pid=notebook.pid), lambda held: held in LITTLE)
        assert heard(notebook) == ""
        assert digest_in(notebook.run("print(digest())")) == digest


def test_while_it_leaves_the_kernel_answers_and_a_cell_calls_it_off(
    filled: tuple[Notebook, str], tmp_path: Path
) -> None:
    notebook, digest = filled
    notebook.run(SLOW.format(str(tmp_path), 2 * HELD))
    notebook.run("%tf_gpu park --auto 200ms")
    until((tmp_path / "begun").exists)
    assert ask(notebook, "kernel_info_request", {})["status"] == "ok"
    asked = notebook.client.execute("slow.stop(); print(digest())")
    (tmp_path / "go").touch()

    assert reply_to(notebook.client, asked)["status"] == "ok"
    until(lambda: heard(notebook), lambda text: digest in text)


def test_what_speaks_against_it_puts_it_off_and_is_said_in_the_log_alone(
    site: Site, filled: tuple[Notebook, str], tmp_path: Path
) -> None:
    notebook, digest = filled
    log = tmp_path / "log"
    notebook.run(
        "import threading; over = threading.Event(); work = threading.Thread(target=over.wait); work.start()\n"
        "from tfgpu_magic.parking import automatic; automatic.AGAIN_AFTER = 0.1\n"
        f"automatic._log.setLevel(logging.DEBUG); automatic._log.addHandler(logging.FileHandler({str(log)!r}))\n"
        "%tf_gpu park --auto 200ms"
    )
    tried = until(log.read_text, lambda text: text.count("parked by itself: These threads") > 1, despite=OSError)
    assert "done" not in tried
    assert site.machine.held(pid=notebook.pid) > HELD
    assert heard(notebook) == ""
    notebook.run("over.set(); work.join()")
    until(log.read_text, lambda text: text.endswith("parked by itself: done\n"))
    assert digest_in(notebook.run("print(digest())")) == digest


def test_when_needed_it_stays_until_another_process_finds_no_room(
    site: Site, filled: tuple[Notebook, str], tmp_path: Path
) -> None:
    notebook, digest = filled
    looks = tmp_path / "looks"
    notebook.run(
        "from tfgpu_magic.monitor.board import wanted\n"
        f"asked, log = wanted.by_others, open({str(looks)!r}, 'a', buffering=1)\n"
        "wanted.by_others = lambda: print(found := asked(), file=log) or found\n"
        "%tf_gpu park --auto 200ms --when-needed"
    )
    other = Notebook(site.server, "other.ipynb")
    try:
        assert "Not applied." in other.run("%tf_gpu limit 100GiB")  # for which no parking would make room
        before = len(looks.read_text())
        until(looks.read_text, lambda text: "set()" in text[before:])
        assert site.machine.held(pid=notebook.pid) > HELD
        assert "Not applied." in other.run("%tf_gpu limit 7.6GiB")
        until(lambda: site.machine.held(pid=notebook.pid), lambda held: held in LITTLE)
        assert digest_in(notebook.run("print(digest())")) == digest
    finally:
        other.end()


def test_without_the_extension_it_is_parked_by_itself_no_more(filled: tuple[Notebook, str]) -> None:
    notebook, _ = filled
    notebook.run("%tf_gpu park --auto 20m")
    notebook.run("import threading; threads = lambda: print([one.name for one in threading.enumerate()])")
    assert "tfgpu_magic-park-auto" in notebook.run("threads()")
    notebook.run("%unload_ext tfgpu_magic")
    until(lambda: notebook.run("threads()"), lambda said: "tfgpu_magic-park-auto" not in said)
    notebook.run("%load_ext tfgpu_magic")


def test_room_is_wanted_for_a_while_and_by_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    wanted.note(["GPU-1"])
    assert wanted.by_others() == set()
    run(None, wanted.note, ["GPU-2", "GPU-3"])
    assert wanted.by_others() == {"GPU-2", "GPU-3"}
    monkeypatch.setattr(wanted, "EXPIRES_AFTER", 0.0)
    assert wanted.by_others() == set()
