"""The board's directory: nobody else's is ever trusted, and no link is followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.monitor.boards import NOBODY, root_only, snapshot
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor import board, place
from tfgpu_magic.monitor.board import BOARD, LOCK, Reader, Writer
from tfgpu_magic.monitor.place import Place, directory

if TYPE_CHECKING:
    pass


def test_the_directory_is_the_one_that_is_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    named = []
    for variables in (["TFGPU_MAGIC_DIR", "XDG_RUNTIME_DIR"], ["XDG_RUNTIME_DIR"], []):
        for name in ("TFGPU_MAGIC_DIR", "XDG_RUNTIME_DIR"):
            monkeypatch.delenv(name, raising=False)
            if name in variables:
                monkeypatch.setenv(name, str(tmp_path))
        named.append(directory())

    assert named == [tmp_path, tmp_path / "tfgpu_magic", tmp_path / f"tfgpu_magic-{os.geteuid()}"]


@root_only
def test_a_runtime_directory_of_another_user_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFGPU_MAGIC_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    os.chown(tmp_path, NOBODY, NOBODY)

    assert directory().parent != tmp_path


def test_it_and_its_files_are_for_nobody_else(folder: Path, writer: Writer) -> None:
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / BOARD)]

    assert modes == [0o700, 0o600]


def test_a_link_is_refused_and_not_followed(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "target")

    with pytest.raises(MonitorError, match="is a link"):
        Place()


def test_a_file_in_its_place_is_refused(folder: Path) -> None:
    folder.write_text("")

    with pytest.raises(MonitorError, match=r"TFGPU_MAGIC_DIR\.$"):
        Place()


def test_one_that_others_may_enter_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)

    with pytest.raises(MonitorError, match=r"open to other users \(mode 755; chmod 700 closes it\)"):
        Place()


@root_only
def test_one_of_another_user_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)

    with pytest.raises(MonitorError, match=f"belongs to another user \\({NOBODY}, and you are 0\\)"):
        Place()


@pytest.mark.parametrize("how", ["link", "hard link", "pipe", "directory"])
def test_a_file_that_is_not_plain_is_refused_at_once(tmp_path: Path, folder: Path, here: Place, how: str) -> None:
    (tmp_path / "precious").write_text("precious")
    if how == "link":
        (folder / LOCK).symlink_to(tmp_path / "precious")
    elif how == "hard link":
        (folder / LOCK).hardlink_to(tmp_path / "precious")
    elif how == "pipe":
        os.mkfifo(folder / LOCK)
    else:
        (folder / LOCK).mkdir()

    with pytest.raises(MonitorError, match=r"Remove it\.$"):
        here.open(LOCK, os.O_RDWR | os.O_CREAT)


@root_only
def test_a_file_of_another_user_is_refused(folder: Path, here: Place) -> None:
    (folder / LOCK).touch()
    os.chown(folder / LOCK, NOBODY, NOBODY)

    with pytest.raises(MonitorError, match="not a plain file of your own"):
        here.open(LOCK, os.O_RDWR)


def test_a_link_at_the_boards_place_is_replaced_and_its_target_left_alone(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    with Place() as here:
        (folder / BOARD).symlink_to(tmp_path / "precious")
        writer = Writer(here)
        writer.publish(snapshot())
        writer.close()

    assert (tmp_path / "precious").read_text() == "precious"
    assert not (folder / BOARD).is_symlink()


def test_a_simulated_machine_has_a_board_of_its_own(
    folder: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.publish(snapshot(3))
    monkeypatch.setenv(place._SIMULATED, "/somewhere/machine")
    with Place() as simulated:
        reader = Reader(simulated)

        assert simulated.simulated
        assert reader.look().message is board.NOTHING


def test_the_variable_of_a_simulated_machine_is_the_simulators() -> None:
    from tfgpu_magic.simgpu import ENVIRONMENT

    assert place._SIMULATED == ENVIRONMENT
