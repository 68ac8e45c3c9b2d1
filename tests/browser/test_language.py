"""The panel in another language: a pack whose letters are all strange leaves no English in it but names.

The pack comes in place of the server's answer about languages, and translates what JupyterLab's extractor would find in
the front end's sources: literals. So this sees what is not given to it. What server and kernel say is English.
"""

from __future__ import annotations

import json
import re
import string
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from jupyterlab_server.translation_utils import translator
from playwright.sync_api import expect

from scripts._frontend import SOURCES
from tests import waiting
from tests.browser.panel import open_panel, table_of, visit
from tests.browser.scene import HOLD, playing, shot, soon
from tests.browser.test_choose import PATIENCE
from tests.machine.boards import end_collectors
from tests.processes import NOBODYS_PID
from tests.slack import SLACK
from tfgpu_magic.notebook.chooser import MIME
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

    from tests.browser.scene import Scene

pytestmark = pytest.mark.nightly

_LITERAL = r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_STRANGE = str.maketrans(string.ascii_letters, "ж" * 52)
_TEXTS = """view => [...view.querySelectorAll('*')].flatMap(one => [
  ...[...one.childNodes].filter(node => node.nodeType === Node.TEXT_NODE).map(node => node.data),
  one.getAttribute('title'), one.getAttribute('aria-label')
]).filter(Boolean).join('\\n')"""

NAMES = {"GiB", "MiB", "Simulated", "GPU", "train", "ipynb", "neighbour", "python"}
"""What is in no language: notebooks, programs, units and GPUs."""
COMMAND = {"tfgpu_magic", "simgpu", "gpus", "jupyter", "lab"}
"""The line that tries the panel without a GPU."""
CHILD = f"""import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {f"{HOLD}; import sys; sys.stdin.read()"!r}], stdin=subprocess.PIPE)"""
"""A cell that starts a process, which holds memory and ends with its kernel."""
WORDS = {"gpu", "visible", "limit", "growth", "pick", "need", "grow", "release", "In"}
"""The language of the magics, and how notebooks number cells."""
USES = "import tensorflow as tf; kept = tf.zeros(9)"
"""A cell after which only a restart changes anything."""
STATE = "import json, tfgpu_magic.notebook.widget as widget; print(json.dumps(widget.MemoryTable._one.state))"
"""A cell that prints what the kernel tells its live table."""


def pack() -> dict[str, object]:
    """Return a language pack, as JupyterLab's server sends it."""
    found: dict[str, object] = {}
    for file in (SOURCES / "src").rglob("*.ts"):
        source = file.read_text()
        for one, many in re.findall(rf"trans\._n\({_LITERAL},{_LITERAL}", source):
            found[_text(one)] = [_text(one).translate(_STRANGE), _text(many).translate(_STRANGE)]
        for literal in re.findall(rf"trans\.__\({_LITERAL}", source):
            found[_text(literal)] = [_text(literal).translate(_STRANGE)]
    head = {"domain": "tfgpu_magic", "language": "eo", "plural_forms": "nplurals=2; plural=(n != 1);"}
    return {"data": {"tfgpu_magic": {"": head, **found}}, "message": ""}


def _text(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal[1:-1].replace("\\n", "\n"))


def english(view: Locator, told: object = None) -> set[str]:
    """Return the English words of a view, of its titles and of what a screen reader is told, but those of a message."""
    return words(view.evaluate(_TEXTS)) - words(*texts(told)) - NAMES


def words(*some: str) -> set[str]:
    """Return the words of texts in English."""
    return set(re.findall(r"[A-Za-z_]{2,}", " ".join(some)))


def texts(told: object) -> Iterator[str]:
    """Return the texts in JSON; of an object, its members'."""
    match told:
        case str():
            yield told
        case list() | dict():
            yield from chain.from_iterable(map(texts, told.values() if isinstance(told, dict) else told))


class Kernel:
    """What a page's kernels have answered its chooser."""

    def __init__(self, page: Page) -> None:
        self.answers: list[object] = []
        page.on("websocket", lambda socket: socket.on("framereceived", self._hear))

    def _hear(self, frame: str | bytes) -> None:
        text = frame if isinstance(frame, str) else frame.decode(errors="replace")
        if (at := text.find(f'"{MIME}":')) >= 0:
            self.answers.append(json.JSONDecoder().raw_decode(text, text.index("{", at))[0])


@contextmanager
def strange(browser: Browser, machine: Machine, home: Path) -> Iterator[tuple[Scene, Page]]:
    """Have JupyterLab on a machine, and a page of it in strange letters."""
    answer = pack()
    with playing(machine, home) as scene, closing(browser.new_page(viewport={"width": 1300, "height": 900})) as page:
        page.route("**/lab/api/translations/**", lambda route: route.fulfill(json=answer))
        yield scene, page


def test_no_english_is_left_in_the_panel(browser: Browser, tmp_path: Path) -> None:
    with Machine.create("3x16GiB") as machine, strange(browser, machine, tmp_path) as (scene, page):
        scene.notebook("train.ipynb", HOLD, CHILD)
        machine.add_neighbour("2GiB@1")
        machine.add_row(NOBODYS_PID, 1, "1GiB")
        machine.lose(2)
        visit(page, scene)
        panel = open_panel(page)
        soon(lambda: len(panel.rows()) == 4, 60)
        waiting.until(lambda: english(panel.root, seen(scene)), lambda left: not left, seconds=20)
        owners = {row.owner for row in panel.rows()}
        shot(page, "strange")
        machine.remove_driver()
        notice = panel.root.locator(".tfgpu-view-notice").first
        notice.wait_for(timeout=60_000 * SLACK)
        waiting.until(lambda: english(panel.root, seen(scene)) - COMMAND, lambda left: not left, seconds=20)
        shot(page, "strange-absent")

    assert {re.sub(r"python[\d.]*", "python", owner) for owner in owners} == {
        "train.ipynb",
        "train.ipynb's python",
        "neighbour",
        "a process that ended",
    }


def test_no_english_is_left_in_the_chooser(browser: Browser, tmp_path: Path) -> None:
    with Machine.create("2x16GiB") as machine, strange(browser, machine, tmp_path) as (scene, page):
        made, kernel = scene.notebook("train.ipynb"), Kernel(page)
        machine.add_neighbour("15.5GiB@0")
        visit(page, scene, made.path)
        open_panel(page)
        dialog = opened(page)
        for gpu, memory, state in (("1", "growth", "fits"), ("0", "limit", "refused"), ("1", "limit", "limit")):
            dialog.locator(f'[name="tfgpu-choose-gpu"][value="{gpu}"]').check()
            dialog.locator(f'[name="tfgpu-choose-memory"][value="{memory}"]').check()
            part = dialog.locator(".tfgpu-choose-refused" if state == "refused" else ".tfgpu-choose-note")
            expect(part.first).to_be_visible(timeout=PATIENCE)
            soon(partial(worded, dialog, part, kernel), 30)
            shot(page, f"strange-{state}")
        page.keyboard.press("Escape")
        made.run(USES)
        dialog = opened(page)
        expect(dialog.locator(".tfgpu-choose-late")).to_contain_text("ж", timeout=PATIENCE)  # the page's half
        soon(lambda: worded(dialog, dialog.locator(".tfgpu-choose-late"), kernel, USES), 30)
        shot(page, "strange-late")
        machine.remove_driver()
        end_collectors(machine)  # a driver that is open is not removed
        dialog.locator('[name="tfgpu-choose-memory"][value="growth"]').check()
        soon(lambda: worded(dialog, dialog.locator(".tfgpu-choose-notice"), kernel, USES), 60)
        shot(page, "strange-error")


def test_a_live_table_has_the_pages_sentences(browser: Browser, tmp_path: Path) -> None:
    with Machine.create("2x16GiB") as machine, strange(browser, machine, tmp_path) as (scene, page):
        made = scene.notebook("train.ipynb", "%tf_gpu visible 1; limit 1GiB --grow", HOLD, more=("%tf_gpu top",))
        machine.add_neighbour("2GiB@0")
        visit(page, scene, made.path)
        page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
        table = table_of(page)
        soon(lambda: len(table.rows()) == 2, 60)
        told = [seen(scene), json.loads(made.run(STATE))]
        waiting.until(lambda: english(table.root, told) - WORDS, lambda left: not left, seconds=20)
        shot(page, "strange-table")


def test_no_english_is_left_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = type("Pack", (), {"pgettext": lambda _, __, text: text.translate(_STRANGE)})
    monkeypatch.setattr(translator, "_LOCALE", "eo")
    monkeypatch.setattr(translator, "_TRANSLATORS", {"tfgpu_magic": pack()})
    for file in (SOURCES / "schema").glob("*.json"):
        schema = json.dumps(translator.translate_schema(json.loads(file.read_text())), ensure_ascii=False)

        assert re.findall(r'"(?:title|description|[a-z.-]*-label)": "([^"]*[A-Za-z][^"]*)"', schema) == []


def opened(page: Page) -> Locator:
    """Open the chooser, by its button below the panel."""
    page.locator(".tfgpu-panel-offer").click()
    return page.locator(".jp-Dialog.tfgpu-choose-dialog")


def seen(scene: Scene) -> object:
    """Return what a server tells its pages."""
    return json.load(scene.server.open("tfgpu-magic/snapshot"))


def worded(dialog: Locator, part: Locator, kernel: Kernel, cell: str = "") -> bool:
    """See that a part of the chooser is there, and no English left in it but the kernel's and a cell that it quotes."""
    expect(part.first).to_be_visible()
    left = english(dialog, kernel.answers) - WORDS - words(cell)
    assert not left
    return True
