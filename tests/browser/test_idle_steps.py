"""The administrator's file in a page: the server tells of a notebook, with what will be done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.panel import use_theme, visit
from tests.browser.scene import HOLD, Scene, playing, shot
from tests.browser.unused import unused
from tests.machine.boards import end_collectors
from tests.server.test_idle_steps import told
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = """
import asyncio, pathlib
from tfgpu_magic import policy
from tfgpu_magic.lab import idle_actions
policy.FILE = pathlib.Path({file!r})
idle_actions.LOOK_EVERY = 60.0  # each look stands for a minute

async def run(self):
    while True:
        await asyncio.sleep(0.2)
        try:
            policy.FILE.with_name("begin").exists() and await self.check()
        except (idle_actions.PolicyError, idle_actions._UnseenError):  # a test may be writing the file
            pass

idle_actions.IdleSteps.run = run
"""
TOAST = ".Toastify__toast"
SOON = "const { setInterval } = window; window.setInterval = (does, ms) => setInterval(does, ms === 60000 ? 500 : ms);"
"""What has a page ask the server twice a second, and not once a minute."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("home")
    file = home / "tfgpu_magic.toml"
    file.write_text('[idle]\nnotify = "30m"\nstop = "500h"\n')
    (home / ".jupyter").mkdir()
    (home / ".jupyter" / "jupyter_server_config.py").write_text(CONFIG.format(file=str(file)))
    with Machine.create("1x16GiB") as machine, playing(machine, home) as scene:
        yield scene
        end_collectors(machine)


@pytest.fixture(scope="module")
def context(context: BrowserContext) -> BrowserContext:
    context.add_init_script(SOON)
    return context


@pytest.fixture
def scene(site: Scene) -> Scene:
    return site


def asked(page: Page) -> None:
    """Wait until the page has asked the server again, and has shown an answer."""
    for _ in range(3):
        with page.expect_response("**/tfgpu-magic/idle*"):
            pass


def test_the_server_tells_once_and_its_owner_may_say_not_today(scene: Scene, page: Page) -> None:
    notebook = scene.notebook("train.ipynb", HOLD)
    unused(scene, notebook)
    (scene.server.home / "begin").touch()
    until(lambda: told(scene.server, notebook.kernel), lambda one: one.get("told") is not None, seconds=60)
    visit(page, scene)
    toast = page.locator(
        TOAST, has_text=re.compile(r"train\.ipynb has held \S+ GiB for \d+ (min|h) without using it\.")
    )
    expect(toast).to_be_visible(timeout=30_000 * SLACK)
    expect(toast).to_contain_text("It will be shut down in")
    asked(page)
    expect(page.locator(TOAST)).to_have_count(1)
    assert toast.locator("button", has_text=re.compile(r"\w")).all_inner_texts() == ["Open", "Shut Down…", "Not Today"]
    for theme in ("Light", "Dark"):
        use_theme(page, f"JupyterLab {theme}")
        shot(page, f"idle-steps-{theme.lower()}")

    toast.get_by_text("Not Today").click()
    expect(page.locator(TOAST)).to_have_count(0)
    until(lambda: told(scene.server, notebook.kernel)["put_off"])  # it is asked for beside that
    page.reload()
    asked(page)
    assert told(scene.server, notebook.kernel)["rests"] > 0
    assert page.locator(TOAST).count() == 0
