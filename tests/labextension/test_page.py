"""The built widget in a real browser, in every recorded state: what it draws, and that any name is only text."""

from __future__ import annotations

import functools
import html
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.scene import program

ROOT = Path(__file__).parents[2]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the standard library's name
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=ROOT)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/labextension/tests/page/index.html"
        server.shutdown()


def markup(site: str, query: str) -> str:
    """Return what the page is, a second of its own time after it was opened, in a browser of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program(), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        command += ["--dump-dom", "--virtual-time-budget=1000", f"{site}?{query}"]
        page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout
    return page.partition('<div id="here"')[2].partition("<script")[0]


def text(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<!--.*?-->|<[^>]*>", " ", page)).split())


def test_it_shows_who_holds_what(site: str) -> None:
    page = text(markup(site, "state=sketch"))

    assert "0 A100-80GB 61.2 / 80 GiB" in page
    assert "0 A100-80GB 61.2 / 80 GiB use 93% · 61 °C · 287 W" in page
    assert "train.ipynb busy 48.0 GiB in use 31.2 peak 44.9 limit 48 GiB use 93%" in page
    eval_ = "eval.ipynb unused 2 h 10.1 GiB in use 0.3 peak 9.8 growth"
    assert f"{eval_} 10.1 GiB could come back" in page
    assert "maria 3.1 GiB" in page
    assert "2 Tesla T4 N/A: the GPU is lost" in page


def test_a_bar_says_in_words_whose_the_memory_is(site: str) -> None:
    page = markup(site, "state=sketch")

    assert 'aria-label="train.ipynb 48.0 GiB, eval.ipynb 10.1 GiB, others 3.1 GiB, free 18.8 GiB"' in page


def test_names_are_text_whatever_they_are(site: str) -> None:
    page = markup(site, "state=hostile")

    assert not re.search(r"<(img|script|b)[ >]", page)
    assert "<img src=x onerror=alert(1)>" in text(page)
    assert len(page) < 100_000  # however long a name is


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("nobody", "No process holds GPU memory"),
        ("absent", "python -m tfgpu_magic.simgpu --gpus 4x16GiB -- jupyter lab"),
        ("error", "The NVIDIA driver does not answer"),
        ("stale", "stale since"),
        ("mixed", "simulated"),
        ("crowd", "Show 32 more"),
    ],
)
def test_each_state_says_what_it_is(site: str, state: str, sentence: str) -> None:
    assert sentence in text(markup(site, f"state={state}"))


def test_where_nothing_comes_by_itself_it_says_of_when_it_is_and_has_a_button(site: str) -> None:
    live, saved = (text(markup(site, f"state=widget&live={live}")) for live in ("true", "false"))

    assert live.startswith("> GPU memory live · 1 s by memory")
    assert re.match(r"> GPU memory as of \d\d:\d\d:\d\d Refresh by memory", saved)
