"""Builds the front end into the package where its sources have changed; with --link, into this environment too.
With --current it builds nothing, and the exit status is 1 if there is something to build.

Sources are in ``labextension/``. From them come JupyterLab's prebuilt extension and the widget's module and style.
The licences of what is in these are written to ``labextension/licenses/``, and committed.
Needs only the standard library, and for building Node.js and jupyter-builder on the path.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "labextension"
EXTENSION = ROOT / "tfgpu_magic" / "labextension"
STATIC = ROOT / "tfgpu_magic" / "notebook" / "static"
LICENSES = SOURCES / "licenses"
SERVER_CONFIG = ROOT / "jupyter-config" / "jupyter_server_config.d" / "tfgpu_magic.json"

_STAMP = SOURCES / ".built"
"""Tells from which sources the output is."""

_NOT_SOURCES = {".built", ".yarn", "lib", "licenses", "node_modules", "tests"}


def main() -> None:
    """Build, and link if asked to."""
    if "--current" in sys.argv[1:]:
        raise SystemExit(not current())
    build()
    if not (SOURCES / "node_modules").exists():  # built elsewhere: the linters and tests want them all the same
        install()
    if "--link" in sys.argv[1:]:
        link(Path(sys.prefix))


def current() -> bool:
    """Tell whether the output is there, and of these sources."""
    outputs = (EXTENSION / "package.json", STATIC / "widget.js", STATIC / "widget.css")
    return all(path.exists() for path in outputs) and _STAMP.exists() and _STAMP.read_text() == checksum()


def checksum() -> str:
    """Sum the sources up, and how they are built."""
    total = hashlib.sha256()
    for path in (*sorted(_sources(SOURCES)), Path(__file__)):
        total.update(f"{path.relative_to(ROOT).as_posix()}\0{path.stat().st_size}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in _NOT_SOURCES:
            continue
        if path.is_dir():
            yield from _sources(path)
        else:
            yield path


def build() -> None:
    """Make the output, unless it is up to date.

    Raises:
        SystemExit: building failed, or there is nothing to build with. What was there before is gone.
    """
    if current():
        return
    _STAMP.unlink(missing_ok=True)
    for output in (EXTENSION, STATIC, SOURCES / "lib"):
        shutil.rmtree(output, ignore_errors=True)
    install()
    _run(["jlpm", "build"])
    shutil.copy(SOURCES / "install.json", EXTENSION / "install.json")
    for left in EXTENSION.rglob("*.orig"):  # the builder's copy of package.json
        left.unlink()
    LICENSES.mkdir(exist_ok=True)
    for name, text in licenses().items():
        (LICENSES / name).write_text(text)
    _STAMP.write_text(checksum())


def licenses() -> dict[str, str]:
    """Return the licence of each package that the built front end contains, by the name of its file."""
    bundled = json.loads((EXTENSION / "static" / "third-party-licenses.json").read_text())["packages"]
    return {f"{package['name'].replace('/', '-')}.txt": package["extractedText"] for package in bundled}


def install() -> None:
    """Fetch what building, linting and testing need, as yarn.lock has it."""
    _run(["jlpm", "install", "--immutable"])


def _run(command: list[str]) -> None:
    """Run a step; what it says is shown only if it fails."""
    path = os.environ.get("PATH", os.defpath)
    beside = Path(sys.executable).parent
    if (beside / command[0]).exists():  # else this is a build environment, which has its programs on the path
        path = f"{beside}{os.pathsep}{path}"
    program = shutil.which(command[0], path=path)
    if program is None:
        raise SystemExit("scripts/_frontend: building needs jupyter-builder and Node.js: pip install --group frontend")
    done = subprocess.run(
        [program, *command[1:]],
        cwd=SOURCES,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        why = "what it says is above. `jlpm install` fetches packages and needs a network."
        raise SystemExit(f"{done.stdout}\nscripts/_frontend: {' '.join(command)} failed; {why}")


def link(prefix: Path) -> None:
    """Make an editable install whole: links in an environment to what a wheel would put there."""
    links = {
        prefix / "share" / "jupyter" / "labextensions" / "tfgpu-magic": EXTENSION,
        prefix / "etc" / "jupyter" / "jupyter_server_config.d" / SERVER_CONFIG.name: SERVER_CONFIG,
    }
    for path, target in links.items():
        if path.is_symlink() and path.resolve() == target.resolve():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.symlink_to(target)


if __name__ == "__main__":
    main()
