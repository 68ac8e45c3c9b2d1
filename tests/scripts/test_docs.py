"""docs/ builds without a warning, and says something about all that is public."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tfgpu_magic
from scripts import _wire
from scripts._docs_parts import FLAGS, PACKAGE, WORDS, first_line, modules
from tfgpu_magic.notebook.words import table
from tfgpu_magic.policy import settings
from tfgpu_magic.server.extension import TfGpuServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FIELD = (ROOT / "docs" / "tensorflow.md").read_text()


def _run(what: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Do as scripts/docs does, in a process of its own: what Sphinx imports may warn."""
    code = f"import sys; from pathlib import Path; from scripts._docs import {what}; sys.exit({what}(*map(Path, sys.argv[1:])))"  # noqa: E501
    command = [sys.executable, "-c", code, *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    done = _run("build", ROOT / "docs", folder)

    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Pages that have an index only, still to be written."""
    (tmp_path / "conf.py").write_text('extensions = ["myst_parser"]')
    return tmp_path


@pytest.fixture
def site() -> Iterator[str]:
    """Another server, which has one page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/there" else 404)
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_no_word_is_misspelt(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("Memory that is recieved.")
    ours, wrong = _run("spell"), _run("spell", tmp_path)

    assert (ours.returncode, ours.stdout) == (0, "")
    assert wrong.returncode != 0
    assert "recieved ==> received" in wrong.stdout


def test_every_public_name_is_in_the_reference_with_an_example(built: Path) -> None:
    reference = (built / "api.html").read_text()
    text = (ROOT / "docs" / "api.md").read_text()
    examples = "".join(re.findall(r"```pycon\n(.*?)```", text, re.DOTALL))

    assert [name for name in tfgpu_magic.__all__ if f'id="tfgpu_magic.{name}"' not in reference] == []
    made = {"Plan": "plan", "Status": "status", "Tensors": "tensors", "Freed": "free"}  # by these functions
    named = set(re.findall(r"tfgpu_magic\.(?:errors\.)?(\w+)", examples))
    assert {made.get(name, name) for name in tfgpu_magic.__all__} <= named


def test_the_search_finds_a_leak_and_an_address_that_moved_leads_on(built: Path) -> None:
    index = json.loads((built / "searchindex.js").read_text()[len("Search.setIndex(") : -1])

    assert {"tensors", "why"} <= {index["docnames"][page] for page in index["terms"]["leak"]}
    assert "location.replace('commands.html'" in (built / "words.html").read_text()


def test_every_word_and_flag_is_explained(built: Path) -> None:
    text = _text(built / "commands.html")

    assert [form for word in WORDS for form in word.usage if form not in text] == []
    assert [word.name for word in WORDS if word.meaning.replace("`", "") not in text] == []
    assert [flag.name for flag in FLAGS if flag.meaning.replace("`", "") not in text] == []


@pytest.mark.parametrize(
    "groups", [[word.group for word in WORDS], [form.group for _, form in table.in_shells()]], ids=["notebook", "shell"]
)
def test_what_the_help_lists_below_one_heading_stands_together(groups: list[str]) -> None:
    assert len([*groupby(groups)]) == len(set(groups))


def test_every_setting_variable_request_and_member_of_a_message_is_in_a_reference(built: Path) -> None:
    code = "".join(path.read_text() for path in PACKAGE.rglob("*") if path.suffix in (".py", ".c", ".h"))
    traits = {**settings.TfGpuSettings.class_own_traits(config=True), **TfGpuServer.class_own_traits(config=True)}
    variables = set(re.findall(r'"(TFGPU_[A-Z_]+)"', code))
    tables = {f"[{name}]" for name in settings._NOT_FOR_KERNELS}
    requests = set(re.findall(r'\(r"(/tfgpu-magic/\w+)"', code))

    assert _unlisted(built / "settings.html", traits.keys() | variables | tables) == set()
    assert _unlisted(built / "http.html", {f"<base>{path}" for path in requests}) == set()
    members = {member.name for members in _wire.types().values() for member in members}
    assert _unlisted(built / "http.html", members) == set()
    assert len(variables) > 5
    assert len(requests) > 4


def _unlisted(page: Path, names: set[str]) -> set[str]:
    """Return which names do not stand alone, as code, on a built page."""
    code = " ".join(re.findall(r"<code[^>]*>(.*?)</code>", page.read_text(), re.DOTALL))
    return names - set(html.unescape(re.sub(r"<[^>]+>", "", code)).split())


def test_every_word_is_used_in_a_guide() -> None:
    guides = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))  # without what is made at the build

    assert [word.name for word in WORDS if not re.search(rf"`%*[^`\n]*\b{word.name}\b", guides)] == []


@pytest.mark.parametrize(
    "known",
    [
        *("list_physical_devices", "set_memory_growth", "get_memory_growth", "set_visible_devices", "tf.device"),
        *("set_logical_device_configuration", "LogicalDeviceConfiguration", "VirtualDeviceConfiguration"),
        *("MirroredStrategy", "get_memory_info", "clear_session", "allow_growth", "gpu_options"),
        *("per_process_gpu_memory_fraction", "nvidia-smi", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        *("TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR=cuda_malloc_async", "CUDA_ERROR_OUT_OF_MEMORY"),
        "Physical devices cannot be modified after being initialized",
        "Virtual devices cannot be modified after being initialized",
        "Visible devices cannot be modified after being initialized",
        "Memory growth cannot differ between GPU devices",
        *("ResourceExhaustedError", "OOM when allocating tensor", "Dst tensor is not initialized"),
        *("No running processes found", "N/A"),
    ],
)
def test_what_people_know_is_found(known: str) -> None:
    assert known in FIELD


def test_every_test_that_a_page_names_is_there() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", pages)

    assert named
    assert [(file, test) for file, test in named if f"\ndef {test}(" not in (ROOT / file).read_text()] == []


def test_the_tree_has_every_module(built: Path) -> None:
    tree = (built / "architecture.html").read_text()
    shown = [path for path in modules() if path.name != "__init__.py"]

    assert [path for path in shown if f">{path.name}<" not in tree] == []
    assert [path.parent for path in shown if f">tfgpu_magic{_below(path.parent)}/<" not in tree] == []


def _text(page: Path) -> str:
    """Return what a built page reads."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def _below(folder: Path) -> str:
    return "".join(f"/{part}" for part in folder.relative_to(PACKAGE).parts)


def test_every_module_begins_with_a_sentence() -> None:
    lines = {path: first_line(path) for path in modules()}

    assert [path for path, line in lines.items() if not line.endswith(".") or len(line) > 117] == []  # characters


def test_a_link_to_nothing_is_an_error(small: Path) -> None:
    (small / "index.md").write_text("# Here\n\nSee [there](nowhere.md).\n")

    done = _run("build", small, small / "built")

    assert done.returncode != 0
    assert "nowhere.md" in done.stderr


def test_a_page_that_another_server_does_not_have_is_an_error(small: Path, site: str) -> None:
    (small / "index.md").write_text(f"# Here\n\n[it]({site}/there), [or not]({site}/gone)\n")

    done = _run("check_links", small, small / "built")

    assert done.returncode == 1
    assert f"{site}/gone" in done.stderr
    assert f"{site}/there" not in done.stderr


def test_a_server_that_cannot_be_reached_is_named_and_no_error(small: Path) -> None:
    (small / "index.md").write_text("# Here\n\n[far](http://nobody.invalid/away)\n")

    done = _run("check_links", small, small / "built")

    assert done.returncode == 0
    assert "Not checked" in done.stdout
    assert "http://nobody.invalid/away" in done.stdout
