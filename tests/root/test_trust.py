"""Root runs nothing that others can change: not its interpreter, its modules, or a folder on the way to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfgpu_magic
from tfgpu_magic.root import trust


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have whom this is run by be root."""
    monkeypatch.setattr(trust, "ROOT", os.getuid())


def flaws(path: Path, below: Path) -> list[Path]:
    """Return what others can change of the way to a file, below a folder."""
    return [step for step in trust.steps(path) if step.is_relative_to(below) and not trust.is_roots(step.lstat())]


def test_the_way_to_a_file_has_every_folder_and_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").touch()
    (tmp_path / "absolute").symlink_to(tmp_path / "there")
    (tmp_path / "relative").symlink_to("absolute/../there/file")

    steps = list(trust.steps(tmp_path / "relative"))

    assert steps[0] == Path("/")
    assert {tmp_path / name for name in ("relative", "absolute", "there", "there/file")} <= set(steps)
    assert tmp_path / "none" not in trust.steps(tmp_path / "none")


def test_a_folder_that_others_can_write_is_named_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/python").touch()
    (tmp_path / "python").symlink_to("home/python")
    assert flaws(tmp_path / "python", tmp_path) == []

    (tmp_path / "home").chmod(0o777)

    assert flaws(tmp_path / "python", tmp_path) == [tmp_path / "home"]


@pytest.mark.parametrize("planted", ["venv", "code", "cache", "pth"])
def test_an_environment_that_a_user_can_write_is_not_for_root(planted: str, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    house = Path(tfgpu_magic.__file__).parent
    (packages / "tfgpu_magic").mkdir()
    (packages / "tfgpu_magic" / "__init__.py").symlink_to(house / "__init__.py")
    shutil.copytree(house / "root", root := packages / "tfgpu_magic/root", ignore=lambda *_: ["__pycache__"])
    changed = {
        "venv": venv,
        "code": packages / "tfgpu_magic",
        "cache": root / "__pycache__",
        "pth": tmp_path / "elsewhere",
    }[planted]
    changed.mkdir(exist_ok=True)
    (packages / "other.pth").write_text(f"{tmp_path / 'elsewhere'}\n")
    changed.chmod(0o777)
    code = (
        "import os; from tfgpu_magic.root import trust; trust.ROOT = os.getuid(); "
        f"inside = {str(tmp_path)!r}; every = trust.steps; "
        "trust.steps = lambda path: (one for one in every(path) if str(one).startswith(inside)); print(trust.flaw())"
    )

    said = subprocess.run([venv / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.startswith(f"others than root can change {changed}")
    changed.chmod(0o755)
    assert not subprocess.run(
        [venv / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
