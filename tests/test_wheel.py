"""What users get: sdist and wheel, installed beside JupyterLab where there is neither Node.js nor TensorFlow.

Both are built here, or are those in the folder that the variable TFGPU_DIST names: scripts/release checks its own so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

import tfgpu_magic
from scripts import _frontend, _prebuilt
from scripts._contents import KINDS, unexplained
from tests.browser.panel import open_panel, visit
from tests.browser.scene import chromium, playing, soon
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.nightly

ROOT = _frontend.ROOT
NAME = f"tfgpu_magic-{tfgpu_magic.__version__}"
DIST = os.environ.get("TFGPU_DIST")
STATIC = {"tfgpu_magic/notebook/static/widget.js", "tfgpu_magic/notebook/static/widget.css"}


@dataclass(frozen=True)
class Installation:
    """A virtual environment, and the only programs that there are in it."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in os.environ if not name.startswith(("JUPYTER", "PYTHON"))}
        return kept | {"PATH": str(self.folder / "bin"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def install(self, *arguments: str | Path) -> None:
        """Install packages as the scripts do: with uv, or else with pip."""
        code = 'set -eu; . scripts/_environment; install "$@"'
        subprocess.run(["sh", "-c", code, "scripts/test", self.folder, *arguments], cwd=ROOT, check=True)

    def run(self, *command: str | Path, cwd: Path | None = None, **variables: str) -> str:
        """Run a program in it to its end; return what it says."""
        done = subprocess.run(
            [self.folder / "bin" / command[0], *command[1:]],
            cwd=cwd or self.folder,
            env=self.variables | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return Installation(folder)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in git and what is built from it, and what only lies about in a clone."""
    clone = tmp_path_factory.mktemp("clone")
    built = [path for folder in (_frontend.EXTENSION, _frontend.STATIC) for path in folder.rglob("*")]
    for path in [*(ROOT / name for name in _tracked(".")), *built, _frontend.SOURCES / ".built"]:
        if path.is_file():
            copy = clone / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
    for name in ("labextension/node_modules/pad/index.js", "labextension/lib/index.js", "tests/__pycache__/x.pyc"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text("")
    return clone


@pytest.fixture(scope="module")
def sdist(fresh: Installation, clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if DIST:
        return Path(DIST, f"{NAME}.tar.gz")
    tools = tmp_path_factory.mktemp("tools")
    fresh.install("--target", tools, "hatchling")
    dist = clone / "dist"
    fresh.run("python", "-m", "hatchling", "build", "-t", "sdist", "-d", dist, cwd=clone, PYTHONPATH=str(tools))
    (made,) = dist.iterdir()
    return made


@pytest.fixture(scope="module")
def prebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _prebuilt.make(tmp_path_factory.mktemp("prebuilt"))


@pytest.fixture(scope="module")
def wheel(fresh: Installation, sdist: Path, prebuilt: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if DIST:
        return Path(DIST, f"{NAME}-py3-none-any.whl")
    dist = tmp_path_factory.mktemp("dist")
    build = ("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", dist, sdist)
    fresh.run(*build, TFGPU_PREBUILT=str(prebuilt))
    (made,) = dist.iterdir()
    return made


@pytest.fixture(scope="module")
def installed(fresh: Installation, wheel: Path) -> Installation:
    fresh.install(wheel, "jupyterlab>=4")
    return fresh


def test_from_an_sdist_all_can_be_built_and_nothing_has_to_be(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    built = {"tfgpu_magic/labextension/package.json", "tfgpu_magic/labextension/install.json", "labextension/.built"}
    sources = {"labextension/src/index.ts", "labextension/yarn.lock", "hatch_build.py", "scripts/_frontend.py"}
    assert names >= STATIC | built | sources | {"tests/conftest.py", "README.md", "LICENSE", "CHANGELOG.md"}
    assert [name for name in names if "node_modules" in name or "__pycache__" in name] == []
    assert [name for name in names if name.startswith("labextension/lib/")] == []


def test_a_wheel_has_the_package_the_front_end_once_and_what_enables_both(wheel: Path) -> None:
    names = _names(wheel)

    data = f"{NAME}.data/data"
    extension = f"{data}/share/jupyter/labextensions/tfgpu-magic"
    files = {path.relative_to(_frontend.EXTENSION) for path in _frontend.EXTENSION.rglob("*") if path.is_file()}
    assert wheel.name == f"{NAME}-py3-none-any.whl"
    assert {name for name in names if name.startswith(data)} == {
        *(f"{extension}/{path.as_posix()}" for path in files),
        f"{data}/etc/jupyter/jupyter_server_config.d/tfgpu_magic.json",
        *(f"{data}/share/tfgpu_magic/{Path(unit).name}" for unit in _tracked("systemd")),
        *(f"{data}/share/tfgpu_magic/{name}" for name in ("dashboard.json", "rules.yml")),
    }
    assert names >= STATIC | {f"tfgpu_magic/{name}" for name in _tracked("tfgpu_magic")}


def test_each_file_of_the_wheel_has_a_reason(wheel: Path) -> None:
    names = _names(wheel)

    assert unexplained(names) == []
    assert unexplained(names | {"tfgpu_magic/notes.txt"}) == ["tfgpu_magic/notes.txt"]
    without = {name for name in names if not name.endswith("py.typed")}
    assert unexplained(without) == [kind for kind in KINDS if kind.endswith("py.typed")]


def test_a_wheel_has_the_licenses_of_what_is_bundled(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        paths = [name for name in archive.namelist() if name.startswith(f"{NAME}.dist-info/licenses/")]
        texts = {Path(path).name: archive.read(path).decode() for path in paths}
        metadata = archive.read(f"{NAME}.dist-info/METADATA").decode()

    bundled = _frontend.licenses()
    assert "lit-html.txt" in bundled
    assert texts == bundled | {"LICENSE": (ROOT / "LICENSE").read_text()}
    assert metadata.count("\nLicense-File: ") == len(texts)


def test_the_package_index_would_take_both(sdist: Path, wheel: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", sdist, wheel], capture_output=True, text=True
    )

    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout + done.stderr


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _tracked(folder: str) -> set[str]:
    """Return the files of a folder that are in git, from there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT / folder, check=True, stdout=subprocess.PIPE, text=True)
    return set(listed.stdout.split("\0")) - {""}


def test_a_fresh_installation_has_both_extensions_enabled_without_node(installed: Installation) -> None:
    lab = installed.run("jupyter", "labextension", "list")
    server = installed.run("jupyter", "server", "extension", "list")

    assert shutil.which("node", path=installed.variables["PATH"]) is None
    assert re.search(rf"tfgpu-magic v{re.escape(tfgpu_magic.__version__)} .*enabled.*OK.*python, tfgpu-magic", lab)
    assert re.search(r"tfgpu_magic\.server .*enabled", server)
    assert re.search(r"tfgpu_magic\.server .*OK", server)


def test_the_extension_loads_in_ipython(installed: Installation, tmp_path: Path) -> None:
    said = installed.run("ipython", "-c", "%load_ext tfgpu_magic\n%tf_gpu", IPYTHONDIR=str(tmp_path))

    assert "Error" not in said
    assert "TensorFlow" in said


def test_the_command_is_there_and_runs_a_program(installed: Installation) -> None:
    said = installed.run("tfgpu", "run", "growth", "--", "-c", "import sys; print(sys.argv)", "x")

    assert installed.run("tfgpu", "--version") == f"tfgpu {tfgpu_magic.__version__}\n"
    assert said.endswith("['-c', 'x']\n")


def test_the_simulated_machine_needs_no_compiler(installed: Installation, tmp_path: Path) -> None:
    said = installed.run("tfgpu", "demo", XDG_CACHE_HOME=str(tmp_path))
    (made,) = (tmp_path / "tfgpu_magic").iterdir()
    loose = list(installed.folder.glob("lib/python*/site-packages/tfgpu_magic/**/lib*.so*"))

    assert "train.ipynb" in said
    assert (made / "libcuda.so.1").exists()
    assert loose == []  # nothing that a loader or a scanner could take for NVIDIA's


def test_it_is_compiled_if_that_is_wanted_or_the_sources_are_others(installed: Installation, tmp_path: Path) -> None:
    code = "import tfgpu_magic.simgpu.build as b; {}print(b.prebuilt_in(b.SOURCES.parent))"
    fits = installed.run("python", "-c", code.format(""))
    wanted = installed.run("python", "-c", code.format(""), TFGPU_SIMGPU_COMPILE="1")
    others = installed.run("python", "-c", code.format("b._FLAGS = ('-O3',); "))
    older = installed.run("python", "-c", code.format("b.platform.libc_ver = lambda: ('glibc', '2.5'); "))
    musl = installed.run("python", "-c", code.format("b.platform.libc_ver = lambda: ('', ''); "))

    assert fits.startswith(str(installed.folder))
    assert (wanted, others, older, musl) == ("None\n",) * 4


def test_the_simulated_machine_is_compiled_to_the_same_each_time(prebuilt: Path, tmp_path: Path) -> None:
    again = _prebuilt.make(tmp_path)

    assert (again.name, again.read_bytes()) == (prebuilt.name, prebuilt.read_bytes())


def test_all_that_it_needs_is_installed(installed: Installation) -> None:
    assert installed.run("python", "-m", "pip", "check") == "No broken requirements found.\n"


def test_its_jupyterlab_shows_who_holds_what(installed: Installation, tmp_path: Path) -> None:
    where = "import importlib.util as u, tfgpu_magic; print(u.find_spec('tensorflow'), tfgpu_magic.__file__)"
    tensorflow, _, package = installed.run("python", "-c", where).strip().partition(" ")
    nothing = dict.fromkeys(("PYTHONPATH", "JUPYTER_PATH"), "")
    environment = nothing | {"PATH": installed.variables["PATH"]}
    with (
        Machine.create("2x16GiB") as machine,
        playing(machine, tmp_path, python=installed.python, environment=environment) as scene,
        sync_playwright() as playwright,
    ):
        neighbour = machine.add_neighbour("2GiB@1")
        browser = chromium(playwright)
        page = browser.new_page()
        visit(page, scene)
        panel = open_panel(page)
        first = soon(lambda: panel.row("neighbour", "1"))
        neighbour.resize("3GiB")
        soon(lambda: (row := panel.row("neighbour", "1")) and row.held == "3.0 GiB")
        used = panel.used("1")
        browser.close()

    assert tensorflow == "None"
    assert Path(package).is_relative_to(installed.folder)
    assert first.held == "2.0 GiB"
    assert used == "3.0 / 16 GiB"


def test_extensions_are_found_in_a_zip_too(tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", _frontend.ROOT, "tfgpu_magic")
    code = "from tfgpu_magic.server.extensions import extensions; print(len(list(extensions())))"
    environment = {"PYTHONPATH": archive, "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert done.stdout == "1\n"
