"""Makes what a release has, and checks it: sdist, wheel and their checksums in dist/. What scripts/release does.

A workflow uploads them; here they go to an index on this machine, from which they are installed as users will.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pty
import re
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tfgpu_magic
from scripts import _frontend, _prebuilt
from scripts._contents import kinds_of, unexplained

ROOT = _frontend.ROOT
DIST = ROOT / "dist"
VERSION = tfgpu_magic.__version__
PROMISED = 10.0
"""Seconds from `uvx` to the first picture, once all is fetched."""

_VERSIONS = {
    "tfgpu_magic/_version.py": '^__version__ = "(.*)"',
    "CHANGELOG.md": r"^## (?:Unreleased: )?(\S+)",
    "conda/recipe.yaml": '^  version: "(.*)"',
    "CITATION.cff": "^version: (.*)",
    "labextension/package.json": '^  "version": "(.*)"',
}
"""The files that have the version, and where."""

GLIBC = "2.34"
"""What the compiled simulated machine may ask for, by docs/install.md. Made on a newer system it asks for more."""

PATIENCE = 300.0
"""Seconds in which an index must answer, or a program show something."""


def main() -> int:
    """Make and check a release; return the exit status."""
    parser = argparse.ArgumentParser("scripts/release", description=__doc__)
    parser.add_argument("--tag", help="what is released: it must be this version, and CHANGELOG.md has its date")
    parser.add_argument("--rehearse", action="store_true", help="a tree with changes that no commit has will do")
    parser.add_argument("--set", metavar="VERSION", help="only write this version, and the day, into all files")
    options = parser.parse_args()
    if options.set:
        set_version(ROOT, options.set)
        return 0
    problems = [*disagreements(ROOT, options.tag), *([] if options.rehearse else changes())]
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        _make(Path(scratch))
        with step("Metadata, as the package index reads it"):
            _run(sys.executable, "-m", "twine", "check", "--strict", *_made())
        _show()
        with step("Both, uploaded to an index on this machine"), _index(Path(scratch)) as index:
            command = ("upload", "--repository-url", index, "--username", "any", "--password", "any")
            _run(sys.executable, "-m", "twine", *command, "--non-interactive", *_made())
            for when in ("the first time", "again"):
                seconds = first_picture(f"{index}simple/", Path(scratch, "cache"))
                print(f"  uvx --from tfgpu-magic tfgpu demo: a picture after {seconds:.1f} s, {when}")
        if seconds > PROMISED:
            raise SystemExit(f"That takes longer than the {PROMISED:.0f} s that are promised.")
        with step("The recipe for conda, on the sdist"):
            _run(sys.executable, "-m", "scripts._recipe", _made()[0], _new(Path(scratch, "conda")))
    with step("The wheel, installed where there is neither a compiler nor Node.js: tests/test_wheel.py"):
        _run(sys.executable, "-m", "pytest", "--quiet", "tests/test_wheel.py", TFGPU_DIST=str(DIST))
    print(f"Made: {DIST.relative_to(ROOT)}/SHA256SUMS and what it lists.")
    return 0


def disagreements(root: Path, tag: str | None = None) -> list[str]:
    """Return where a tree has another version than that of the package, as sentences.

    Args:
        root: the tree.
        tag: what is to be released, if something is.
    """
    found = {name: _written(root / name, place)[1] for name, place in _VERSIONS.items()}
    if tag:
        found["the tag"] = tag.removeprefix("v")
    wrong = [
        f"{name} has version {version!r}, and the package {VERSION!r}."
        for name, version in found.items()
        if version != VERSION
    ]
    title = _written(root / "CHANGELOG.md", "^## (.*)")[1]
    if tag and not re.fullmatch(r"\S+ \(\d{4}-\d\d-\d\d\)", title):
        wrong.append(f"CHANGELOG.md must begin with '## {VERSION} (YEAR-MONTH-DAY)', and has '## {title}'.")
    return wrong


def set_version(root: Path, version: str) -> None:
    """Write a version into each file of a tree that has it, and today into CHANGELOG.md."""
    for name, place in {**_VERSIONS, "CHANGELOG.md": "^## (.*)"}.items():
        found = _written(root / name, place)
        new = f"{version} ({time.strftime('%Y-%m-%d')})" if name == "CHANGELOG.md" else version
        (root / name).write_text(found.string[: found.start(1)] + new + found.string[found.end(1) :])


def _written(path: Path, place: str) -> re.Match[str]:
    found = re.search(place, path.read_text(), re.MULTILINE)
    assert found, f"{path} has no version"
    return found


def changes() -> list[str]:
    """Return what there is in the tree that no commit has."""
    return _run("git", "status", "--porcelain").splitlines()


def _make(scratch: Path) -> None:
    """Fill dist/, and make all of it a second time and the wheel from the sdist too: it must be the same."""
    with step("The simulated machine, compiled twice"):
        prebuilt, again = (_prebuilt.make(scratch / name) for name in ("one", "two"))
        _same(prebuilt, again)
        if not prebuilt.stem.endswith(f"-glibc-{GLIBC}.tar"):
            raise SystemExit(f"{prebuilt.name} needs another C library than {GLIBC}, as the page Install has it.")
    with step("Sdist and wheel, built twice, and the wheel from the sdist"):
        _build(ROOT, DIST, prebuilt)
        _build(ROOT, scratch / "again", prebuilt)
        sdist, wheel = _made()
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        tree = scratch / sdist.name.removesuffix(".tar.gz")
        _build(tree, scratch / "from-sdist", prebuilt, "wheel")
        for folder, path in (("again", sdist), ("again", wheel), ("from-sdist", wheel)):
            _same(path, scratch / folder / path.name)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in _made()]
    (DIST / "SHA256SUMS").write_text("".join(sums))


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _made() -> tuple[Path, Path]:
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def _build(tree: Path, folder: Path, prebuilt: Path, *targets: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    for target in targets or ("sdist", "wheel"):
        command += ["-t", target]
    day = _run("git", "log", "-1", "--format=%ct").strip()
    _run(*command, cwd=tree, SOURCE_DATE_EPOCH=day, TFGPU_PREBUILT=str(prebuilt))


def _same(one: Path, other: Path) -> None:
    if one.name != other.name or one.read_bytes() != other.read_bytes():
        raise SystemExit(f"{one} and {other} were made of the same, and differ.")


def _show() -> None:
    """Show sizes, and the kinds of the wheel's files; a file without a reason and a missing licence are errors."""
    _, wheel = _made()
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: info for info in archive.infolist()}
        texts = {Path(name).name: archive.read(name).decode() for name in files if ".dist-info/licenses/" in name}
    if wrong := unexplained(files):
        raise SystemExit(f"What has no reason to be in the wheel, or is missing in it: {', '.join(wrong)}")
    if texts != _frontend.licenses() | {"LICENSE": (ROOT / "LICENSE").read_text()}:
        raise SystemExit(f"The wheel's licenses are not those of what it has: {', '.join(texts)}")
    kinds: dict[str, list[zipfile.ZipInfo]] = {}
    for name, info in files.items():
        kinds.setdefault(kinds_of(name)[0], []).append(info)
    for path in _made():
        print(f"  {path.name}: {path.stat().st_size:,} bytes")
    for kind, infos in kinds.items():
        print(f"  {len(infos):5} files {sum(info.compress_size for info in infos):9,} bytes  {kind}")
    print(f"  licenses: {', '.join(sorted(texts))}")


@contextmanager
def _index(scratch: Path) -> Iterator[str]:
    """Run a package index of what is uploaded to it; give its address."""
    packages = _new(scratch / "index")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        "-m",
        "pypiserver",
        "run",
        "-i",
        "127.0.0.1",
        "-p",
        str(port),
        "-P",
        ".",
        "-a",
        ".",
        "--disable-fallback",
    ]
    server = subprocess.Popen([sys.executable, *command, packages], stderr=subprocess.DEVNULL)
    try:
        _until_listening(server, port)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait()


def _until_listening(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("The index on this machine did not start.")


def first_picture(index: str, cache: Path) -> float:
    """Start the demo by one line, in a terminal, from an index; return the seconds until both neighbours are shown.

    Args:
        index: the address of the index that has this package; what it needs comes from the usual one.
        cache: the folder of uv's cache, and of the simulated machine's libraries.
    """
    programs = cache / "programs"  # what uv's launchers need, and neither a compiler nor Node.js
    programs.mkdir(parents=True, exist_ok=True)
    for name in ("realpath", "dirname"):
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(shutil.which(name) or name)
    line = ["uvx", "--index", index, "--from", f"tfgpu-magic=={VERSION}", "tfgpu", "demo"]
    kept = {name: os.environ[name] for name in ("HOME", "SSL_CERT_FILE") if name in os.environ}
    environment = kept | {"PATH": str(programs), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    environment |= {"UV_CACHE_DIR": str(cache / "uv"), "UV_PYTHON": sys.executable, "XDG_CACHE_HOME": str(cache)}
    ours, theirs = pty.openpty()
    started = time.monotonic()
    uvx = Path(sys.executable).with_name(line[0])
    shown = subprocess.Popen(
        [uvx, *line[1:]], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    try:
        said = b""
        while b"train.ipynb" not in said or b"maria" not in said:
            ready, _, _ = select.select([ours], [], [], PATIENCE)
            if not ready or shown.poll() is not None:
                raise SystemExit(f"{' '.join(line)} showed nothing:\n{said[-1000:].decode(errors='replace')}")
            said += os.read(ours, 65536)
        seconds = time.monotonic() - started
        os.write(ours, b"q")
        if status := shown.wait(PATIENCE):
            raise SystemExit(f"{' '.join(line)} ended with status {status} after the key q.")
    finally:
        shown.terminate()
        shown.wait()
        os.close(ours)
    return seconds


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is done, and how long it took."""
    print(what, flush=True)
    started = time.monotonic()
    yield
    print(f"  done in {time.monotonic() - started:.1f} s", flush=True)


def _run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Run a program to its end and return what it says; where it fails, that is shown."""
    environment = os.environ | variables
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"{done.stdout}\nscripts/release: {' '.join(map(str, command))} failed; what it says is above."
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
