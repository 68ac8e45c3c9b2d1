"""Names and paths that were made to harm are text on the page, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.browser.panel import open_panel, visit
from tests.browser.scene import HOLD, playing, soon
from tests.jupyter import execute
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

MARKUP = "<img src=x onerror=window.harmed=1><script>window.harmed=1</script>"
PATHS = {
    "markup": f"{MARKUP.replace('/', '')}.ipynb",
    "quotes": "\"'><svg onload=window.harmed=1>${window.harmed=1}{{harmed}}.ipynb",
    "controls": "one\x1b[31m\x07two\rthree\nfour.ipynb",
    "right to left": "\u202eexe.\u2066gnp\u202c.ipynb",
    "long": "l" + "o" * 10_000 + "ng.ipynb",
}


def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 1200})
    dialogs: list[Any] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog))
    with Machine.create("1x16GiB") as machine, playing(machine, tmp_path) as scene:
        machine.add_neighbour("1GiB@0", name=f"'{MARKUP}'")
        for path in PATHS.values():
            session = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
            kernel = scene.server.call("sessions", session)["kernel"]["id"]
            client = scene.server.connect(kernel)
            execute(client, f"%load_ext tfgpu_magic\n%tf_gpu growth\n{HOLD}")
            client.stop_channels()
        visit(page, scene)
        panel = open_panel(page)
        soon(lambda: len(panel.rows()) == len(PATHS) + 1, 30)
        owners = {row.owner for row in panel.rows()}
        elements = panel.root.locator("img, script, svg[onload], iframe").count()
        widths = panel.root.evaluate("view => [view.scrollWidth, view.clientWidth]")
        harmed = page.evaluate("window.harmed")
        titles: list[str] = panel.root.evaluate(
            "view => [...view.querySelectorAll('.tfgpu-view-owner')].map(owner => owner.title)"
        )
        page.close()

    assert (harmed, elements, dialogs) == (None, 0, [])
    assert any(owner.startswith("<img src=x onerror") for owner in owners)
    assert any("svg onload" in owner for owner in owners)
    assert not {character for owner in owners for character in owner} & set("\x1b\x07\r\n\u202e\u2066")
    assert widths[0] <= widths[1] + 1
    assert max(map(len, titles)) < 2000
