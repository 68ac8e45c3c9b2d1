"""The panel as a person sees and uses it: opened, read, clicked."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Error, Locator, Page, Route, expect

from scripts._frontend import ROOT
from tests.browser.scene import Scene
from tests.jupyter import Notebook
from tests.slack import SLACK
from tests.waiting import until

ID = "tfgpu-magic-panel"
SETTINGS = "tfgpu-magic:plugin"
THEMES = "@jupyterlab/apputils-extension:themes"

_READ = """view => [...view.querySelectorAll('.tfgpu-view-gpu')].flatMap(gpu =>
  [...gpu.querySelectorAll('.tfgpu-view-row')].map(row => ({
    gpu: gpu.querySelector('.tfgpu-view-number').textContent,
    owner: row.querySelector('.tfgpu-view-owner').textContent,
    state: row.querySelector('.tfgpu-view-state').textContent,
    held: row.querySelector('.tfgpu-view-held').textContent,
    detail: row.querySelector('.tfgpu-view-detail')?.textContent ?? '' })))"""


_OPEN = "async path => { if (path) await jupyterapp.commands.execute('docmanager:open', { path }); }"
"""Opens a notebook; nothing is returned, as to copy the command's widget out of the page takes seconds."""

_REVEALED = """async () => {
  await jupyterapp.shell.currentWidget.revealed;
  for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
}"""
"""Waits until a document has taken the focus; where something else has it by then, it never does."""


@dataclass(frozen=True)
class Row:
    """A row as it reads."""

    gpu: str
    owner: str
    state: str
    held: str
    detail: str


class View:
    """A view of GPU memory in a page: the panel's or a widget's."""

    def __init__(self, page: Page, root: Locator) -> None:
        self.page = page
        self.root = root

    def rows(self) -> list[Row]:
        cells: list[dict[str, Any]] = self.root.evaluate(_READ)
        spaced = [{name: " ".join(text.split()) for name, text in row.items()} for row in cells]
        return [Row(**row) for row in spaced]

    def row(self, owner: str, gpu: str = "0") -> Row | None:
        return next((row for row in self.rows() if (row.owner, row.gpu) == (owner, gpu)), None)

    def held(self, owner: str, gpu: str = "0") -> int | None:
        """Return the MiB that the view says are held; the view must be set to MiB."""
        row = self.row(owner, gpu)
        number = re.fullmatch(r"(\d+) MiB", row.held) if row else None
        return int(number[1]) if number else None

    def used(self, gpu: str = "0") -> str:
        return str(self.root.locator(f'[role="group"][aria-label="GPU {gpu}"] .tfgpu-view-figure').text_content())

    def link(self) -> str:
        return str(self.root.locator(".tfgpu-view-link").text_content())

    def text(self) -> str:
        return str(self.root.inner_text())

    def sequence(self) -> int:
        """Return the number of the server's message that is drawn."""
        return int(self.root.get_attribute("data-sequence") or -1)

    def draw(self, more: int) -> None:
        """Wait until so many more messages have come, and the last of them is drawn; each reading is one."""
        first = self.sequence()
        until(self.sequence, lambda now: now >= first + more, seconds=10 * more)

    def press(self, what: str, owner: str, gpu: str = "0") -> None:
        """Hover over a row, and press one of its buttons; again if the row has moved meanwhile."""
        section = self.root.locator(f'[role="group"][aria-label="GPU {gpu}"]')
        row = section.locator(".tfgpu-view-row", has=self.page.get_by_text(owner, exact=True))

        def hovered() -> bool:
            row.hover()
            row.locator(f'[data-do="{what}"]').click(timeout=10_000 * SLACK)
            return True

        until(hovered, despite=Error)


def visit(page: Page, scene: Scene, path: str = "") -> None:
    """Open the server's page: of a notebook, or where there is none. A page of JupyterLab that is there opens it."""
    page.set_default_timeout(30_000 * SLACK)
    server, lab = scene.server, scene.application == "jupyterlab"
    if lab and page.url.startswith(f"http://{server.base}lab"):
        page.evaluate(_OPEN, path)
    else:
        where = (f"lab/tree/{path}" if lab else f"notebooks/{path}") if path else ("lab" if lab else "tree")
        page.goto(f"http://{server.base}{where}?token={server.token}")
        restored(page)
    if path:
        page.wait_for_function("path => jupyterapp.shell.currentWidget?.context?.path === path", arg=path)
        page.wait_for_function("jupyterapp.shell.currentWidget.sessionContext?.session?.kernel", timeout=60_000 * SLACK)
        page.evaluate("jupyterapp.shell.currentWidget.sessionContext.ready.then(() => true)")
        page.evaluate(_REVEALED)


def opened(page: Page, scene: Scene, path: str, *cells: str, more: tuple[str, ...] = ()) -> Notebook:
    """Make a notebook with a kernel, as `Scene.notebook` does, and open it in the page."""
    made = scene.notebook(path, *cells, more=more)
    visit(page, scene, path)
    return made


def run_all(page: Page) -> None:
    """Run all cells of the page's notebook, and do not wait for their end."""
    page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")


def restored(page: Page) -> None:
    """Wait until the page has its layout back, as after it is loaded."""
    page.wait_for_function("window.jupyterapp !== undefined", timeout=60_000 * SLACK)
    page.evaluate("jupyterapp.restored.then(() => true)")


def open_panel(page: Page) -> View:
    """Open the panel by its command."""
    page.evaluate("jupyterapp.commands.execute('tfgpu-magic:open')")
    return panel_of(page)


def panel_of(page: Page) -> View:
    """Return the panel, which is open or opens by itself."""
    view = page.locator(f"#{ID} .tfgpu-view")
    expect(view).to_be_visible(timeout=20_000 * SLACK)
    return View(page, view)


def table_of(page: Page) -> View:
    """Return the first live table of the notebook that the page shows."""
    view = page.locator(".jp-NotebookPanel:visible .jp-OutputArea .tfgpu-view").first
    view.wait_for(timeout=30_000 * SLACK)
    return View(page, view)


def recorded(browser: Browser, state: str) -> Page:
    """Return a page that shows a recorded state (`labextension/tests/page/states.mjs`), without a server."""
    page = browser.new_page()
    show(page, state)
    page.wait_for_selector(".tfgpu-view-row")
    return page


def show(page: Page, state: str) -> str:
    """Show a recorded state in a page, and return its text, with a space between any two elements."""
    page.set_default_timeout(30_000 * SLACK)
    page.route("http://view.test/**", _file)
    page.goto(f"http://view.test/labextension/tests/page/index.html?state={state}")
    page.wait_for_selector(".tfgpu-view-head")
    markup = re.sub(r"<!--.*?-->|<[^>]*>", " ", page.locator("#here").inner_html())
    return " ".join(html.unescape(markup).split())


def _file(route: Route) -> None:
    route.fulfill(path=ROOT / urlsplit(route.request.url).path.lstrip("/"))


def use_theme(page: Page, theme: str) -> None:
    """Have a page in another theme, and wait until the page says that it has it: its style sheets are loaded then."""
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)


@contextmanager
def saved(page: Page, what: str) -> Iterator[None]:
    """Wait at the end of the block until the page has saved its `workspaces` or `settings`, which it does later."""
    with page.expect_response(lambda one: one.request.method == "PUT" and f"api/{what}" in one.url):
        yield


def choose(scene: Scene, **settings: object) -> None:
    """Set settings of the panel, as its page of settings does."""
    scene.server.open(f"lab/api/settings/{SETTINGS}", {"raw": json.dumps(settings)}, method="PUT").close()
