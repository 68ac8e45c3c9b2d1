"""What axe finds in a real browser of what WCAG 2.1 asks for at its levels A and AA: nothing, light and dark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.browser.panel import ID, open_panel, opened, run_all, show, table_of, use_theme
from tests.browser.scene import Scene, soon
from tests.browser.test_choose import from_panel

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.nightly

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
STATES = ("sketch", "stale", "nobody", "error", "absent", "hostile", "mixed", "widget")
"""Those of `labextension/tests/page/states.mjs` that differ in what is drawn."""
LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"


def violations(page: Page, within: str) -> list[str]:
    """Let axe look at a part of a page, and return what it finds: the rule, the element, and what is wrong there."""
    page.evaluate(AXE_SCRIPT)
    page.wait_for_function("within => document.querySelector(within)", arg=within)
    found: dict[str, Any] = page.evaluate("([within, rules]) => axe.run(within, rules)", [within, RULES])
    return [
        f"{rule['id']}: {node['html']}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_recorded_view_in_every_state(browser: Browser, theme: str) -> None:
    page = browser.new_page()
    found = {}
    for state in STATES:
        show(page, f"{state}&theme={theme}")
        found[state] = violations(page, "#here")
    page.evaluate("document.querySelector('#here').append(new Image())")
    wrong = violations(page, "#here")
    page.close()

    assert {state: what for state, what in found.items() if what} == {}
    assert [what.partition(":")[0] for what in wrong] == ["image-alt"]


def test_the_panel_the_table_and_the_chooser(scene: Scene, page: Page) -> None:
    held = scene.machine.add_neighbour("2GiB@1")
    opened(page, scene, "axe.ipynb", more=("%load_ext tfgpu_magic", "%tf_gpu top"))
    panel = open_panel(page)
    run_all(page)
    table = table_of(page)
    soon(lambda: panel.row("neighbour", "1") and table.row("neighbour", "1"), 30)
    found: dict[tuple[str, str], list[str]] = {}
    for theme in (DARK, LIGHT):
        use_theme(page, theme)
        found |= {(theme, part): violations(page, part) for part in (f"#{ID}", ".jp-OutputArea .tfgpu-view")}
        dialog = from_panel(page)
        found[theme, "chooser"] = violations(page, ".tfgpu-choose-dialog")
        dialog.press("Escape")
        dialog.wait_for(state="detached")
    held.stop()

    assert {part: what for part, what in found.items() if what} == {}
