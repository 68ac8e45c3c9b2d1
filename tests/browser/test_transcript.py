"""What is read in pages is what `tests/transcript.txt` has: panel, chooser, notices, dialogs, offers, status bar."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.panel import open_panel, opened, restored, run_all, show, visit
from tests.browser.scene import HOLD, TAKE, Scene, soon
from tests.browser.test_choose import PATIENCE, STREAM, accept, from_panel, gpu
from tests.browser.test_offers import offered, run_second, sources
from tests.browser.test_unused import SCRIPT
from tests.browser.unused import unused
from tests.slack import SLACK
from tests.transcript.kept import compare, kept
from tests.transcript.stage import alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

    from tests.jupyter import Notebook

STATES = ("sketch", "widget", "mixed", "stale", "nobody", "error", "absent", "hostile")
"""The recorded states of the panel, but for the one of a crowd, whose figures change."""

IDLE = ("idle", "unused")
"""An idle notebook's state, and that of one that has not used its GPU for a minute."""
TOAST = ".Toastify__toast"
FORGET = """() => {
  const kept = JSON.parse(localStorage.getItem('tfgpu-magic:unused'));
  const days = Object.entries(kept).filter(([, told]) => typeof told === 'string');
  localStorage.setItem('tfgpu-magic:unused', JSON.stringify(Object.fromEntries(days)));
  Storage.prototype.setItem = () => undefined; // the page may tell once more before it is loaded again
}"""
"""Has a page tell once more of what is held without use, when it is loaded again: but for what is not for today."""


def read(what: Locator) -> str:
    """Return what a person reads there, without empty lines."""
    lines = (" ".join(line.split()) for line in what.inner_text().splitlines())
    return "\n".join(line for line in lines if line)


def test_each_recorded_state_of_the_panel(browser: Browser) -> None:
    page = browser.new_page()
    parts = []
    for state in STATES:
        show(page, state)
        parts.append(f"=== {state}\n{read(page.locator('#here'))}\n")
    page.close()
    compare("Pages: the panel in recorded states", alike("\n".join(parts) + "\n", {}))


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have no notebooks of an earlier test, and GPUs that are used alike."""
    yield
    if "scene" in request.fixturenames:
        scene = request.getfixturevalue("scene")
        for session in scene.server.call("sessions"):
            scene.server.delete(f"api/sessions/{session['id']}")


class Reader:
    """What was read so far of a part, below titles. It waits for what the file has: in a page all comes bit by bit."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._parts: list[str] = []

    def note(self, title: str, what: Locator) -> None:
        known, blocks = kept(self._part), [""]

        def there() -> bool:
            blocks.append(alike(f"=== {title}\n{read(what)}\n", {}))
            return blocks[-1] in known

        if not known:
            what.page.wait_for_timeout(5000)  # it is written anew: what is late is seen in the diff
        with contextlib.suppress(AssertionError):  # the comparison tells what is not so
            soon(there, 20 if known else 0)
        self._parts.append(blocks[-1])

    def compare(self) -> None:
        """Compare all of it with the file."""
        compare(self._part, "\n".join(self._parts) + "\n")


def test_the_chooser_and_its_notices(scene: Scene, page: Page) -> None:
    reader = Reader("Pages: the chooser")
    note = reader.note
    notebook = scene.notebook("train.ipynb", more=("1 + 1",))
    notebook.run("%unload_ext tfgpu_magic")
    visit(page, scene, notebook.path)
    dialog = from_panel(page)
    answer = dialog.locator(".tfgpu-choose-answer")
    expect(answer).to_contain_text("It fits")
    note("The chooser as it opens", dialog)
    gpu(dialog, "1").check()
    dialog.get_by_label("Give back what is not in use").check()
    expect(answer).to_contain_text("GPU 1: growth, gives back")
    note("growth that gives back, of GPU 1", dialog)
    insert, done = dialog.get_by_role("button", name="Insert as First Cell"), dialog.locator(".tfgpu-choose-done")
    insert.click()
    expect(done).to_be_visible()
    dialog.get_by_label("No more than a limit").check()
    dialog.get_by_label("Unit of the limit").select_option("GiB")
    number = dialog.get_by_label("Limit, as a number")
    number.fill("40")
    expect(dialog.locator(".tfgpu-choose-range")).to_be_visible()
    note("A limit that cannot be", dialog)
    number.fill("4")
    expect(answer).to_contain_text("GPU 1: limit 4 GiB")
    note("A limit", dialog)
    insert.click()
    expect(done).to_be_visible()
    note("It is the first cell", done)
    assert sources(page) == ["%load_ext tfgpu_magic\n%gpu visible 1; limit 4GiB", "1 + 1"]  # in the other words' place
    accept(dialog).click()
    expect(dialog).to_have_count(0)
    expect(page.locator(TOAST)).to_contain_text("limit 4GiB")
    note("It is set", page.locator(TOAST))
    with scene.machine.add_neighbour("15.5GiB@0"):
        dialog = from_panel(page)
        gpu(dialog, "0").check()
        dialog.get_by_label("No more than a limit").check()
        expect(dialog.locator(".tfgpu-choose-refused")).to_contain_text("GPU 0")
        note("It does not fit", dialog)
        expect(accept(dialog)).to_be_disabled()
        dialog.locator(".tfgpu-choose-ways button").first.press("Enter")
        expect(answer).to_contain_text("It fits")
        expect(dialog.locator(".tfgpu-choose-words")).to_contain_text("%gpu pick; limit 4GiB")
        page.keyboard.press("Escape")
    notebook.run(TAKE)
    panel = open_panel(page)
    soon(lambda: (row := panel.row("train.ipynb", "1")) and row.held == "4.2 GiB" and row.state.startswith(IDLE), 30)
    dialog = from_panel(page)
    expect(dialog.locator(".tfgpu-choose-late")).to_contain_text("since In [")
    note("Too late", dialog)
    page.keyboard.press("Escape")
    reader.compare()


def test_the_panel_and_its_dialogs(scene: Scene, page: Page) -> None:
    reader = Reader("Pages: the panel and its dialogs")
    note = reader.note
    visit(page, scene)
    panel = open_panel(page)
    with scene.machine.add_neighbour("1GiB@0"), scene.machine.add_neighbour("1GiB@1"):
        soon(lambda: panel.text().count("10 min") == 2, 30)  # of both GPUs, whatever other tests have left
    soon(lambda: "No process holds GPU memory" in panel.text(), 30)
    note("Nobody holds memory", panel.root)
    train = scene.notebook("train.ipynb", "%tf_gpu visible 0; limit 4GiB", TAKE)
    eval_ = scene.notebook("work/eval.ipynb", HOLD)
    for number, used in enumerate((train, eval_)):
        scene.machine.set_sensors(number, utilisation=7)
        scene.machine.use(used.pid, 0)
    soon(lambda: {row.owner for row in panel.rows() if row.state.startswith(IDLE)} == {"train.ipynb", "eval.ipynb"}, 60)
    settled = (
        "use 7%",
        "peak 0.3",
        "limit 4 GiB",
        "default: no limit",
    )  # a row's figures come with its kernel's report
    soon(lambda: all(part in panel.text() for part in settled))
    note("Two notebooks", panel.root)
    note("The status bar", page.locator(".tfgpu-status"))
    dialog = page.locator(".jp-Dialog")
    for what in ("restart", "shutDown"):
        panel.press(what, "train.ipynb")
        note(f"{what} of train.ipynb", dialog)
        dialog.locator(".jp-mod-reject").click()
    command = [sys.executable, "-c", SCRIPT]
    with scene.machine.popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        soon(lambda: panel.row("python"), 30)
        panel.press("end", "python")
        note("A process without a notebook", dialog)
        process.kill()
        process.wait()
        dialog.get_by_role("button", name="End").click()
        toast = page.locator(TOAST)
        expect(toast).to_be_visible()
        note("It has ended by itself", toast)
    train.end()
    reader.compare()


def test_offers(scene: Scene, page: Page) -> None:
    reader = Reader("Pages: offers")
    note = reader.note
    with scene.machine.add_neighbour("8GiB@0"):
        opened(page, scene, "offer.ipynb", more=("%tf_gpu visible 0; limit 12GiB",))
        run_all(page)
        expect(offered(page).first).to_be_visible(timeout=2 * PATIENCE)
        note("A line that is refused", page.locator(".jp-NotebookPanel:visible .jp-OutputArea"))
    opened(page, scene, "late.ipynb", TAKE, more=("%tf_gpu limit 2GiB",))
    run_second(page)
    expect(offered(page)).to_be_visible(timeout=2 * PATIENCE)
    late = "row.owner === 'late.ipynb' && row.state === 'idle'"
    page.wait_for_function(f"Object.values({STREAM}.state?.rows ?? []).some(row => {late})")
    offered(page).click()
    note("Too late", page.locator(".jp-NotebookPanel:visible .jp-OutputArea").last)
    note("It asks before it restarts", page.locator(".jp-Dialog"))
    page.locator(".jp-Dialog .jp-mod-reject").click()
    reader.compare()


def test_notices(scene: Scene, page: Page) -> None:
    """A page tells once of what is held without use, and not again today where that is asked."""
    reader = Reader("Pages: notices")
    train, other = (scene.notebook(f"{name}.ipynb", HOLD) for name in ("train", "other"))
    toast, dialog = page.locator(TOAST), page.locator(".jp-Dialog")
    visit(page, scene)
    page.evaluate("localStorage.setItem('tfgpu-magic:unused', '{}')")

    def told_again(what: str, *held: Notebook) -> None:
        unused(scene, *held)
        page.evaluate(FORGET)
        page.reload()
        restored(page)
        expect(toast).to_contain_text(what, timeout=60_000 * SLACK)
        expect(toast).to_have_count(1)

    told_again("2 notebooks hold", train, other)
    reader.note("Two notebooks hold memory without use", toast)
    told_again("train.ipynb has held", train)
    reader.note("One does", toast)
    toast.get_by_text("Shut Down…").click()
    reader.note("It is to be shut down", dialog)
    dialog.locator(".jp-mod-reject").click()
    told_again("train.ipynb has held", train)
    toast.get_by_text("Not Today").click()
    expect(toast).to_have_count(0)
    told_again("other.ipynb has held", train, other)
    toast.get_by_text("Shut Down…").click()
    expect(dialog).to_contain_text("Shut down the kernel of other.ipynb?")
    dialog.get_by_role("button", name="Shut Down").click()
    soon(lambda: scene.held(other) == 0, 30)
    expect(toast).to_have_count(0)
    reader.compare()
