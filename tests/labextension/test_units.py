"""The front end's own tests, and what must hold of what is built from it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import tfgpu_magic
from scripts import _frontend

ROOT = Path(__file__).parents[2]


def test_the_pure_parts_keep_their_promises() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    tests = subprocess.run(
        ["node", "scripts/test.mjs"],
        cwd=_frontend.SOURCES,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )

    assert tests.returncode == 0, tests.stdout + tests.stderr


def test_the_widget_is_small_because_it_is_sent_for_each_widget() -> None:
    module, style = ((_frontend.STATIC / name).read_bytes() for name in ("widget.js", "widget.css"))

    assert len(gzip.compress(module)) < 18_000
    assert len(gzip.compress(style)) < 5_000


def test_the_widget_defines_no_custom_elements_and_writes_no_markup_from_text() -> None:
    module = (_frontend.STATIC / "widget.js").read_text()

    assert "customElements" not in module
    assert "unsafeHTML" not in module
    # lit-html makes its templates, which are ours, by one innerHTML.
    assert module.count(".innerHTML") == 1


def test_no_path_of_the_machine_that_built_it_is_in_it() -> None:
    built = [path for folder in (_frontend.EXTENSION, _frontend.STATIC) for path in folder.rglob("*") if path.is_file()]

    assert built
    assert not [path for path in built if str(ROOT).encode() in path.read_bytes()]


def test_it_has_the_version_of_the_package() -> None:
    package = json.loads((_frontend.SOURCES / "package.json").read_text())

    assert package["version"] == tfgpu_magic.__version__
