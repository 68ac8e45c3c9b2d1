"""The board's directory: no other user's is ever trusted, and no link is followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.machine.boards import NOBODY, root_only, snapshot
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.process_kind import SIMULATED
from tfgpu_magic.machine import collector_start
from tfgpu_magic.machine.board import directory
from tfgpu_magic.machine.board.directory import BoardDirectory, directories
from tfgpu_magic.machine.board.report_files import PREFIX
from tfgpu_magic.machine.board.snapshot_file import NOTHING, SNAPSHOT, SnapshotReader, SnapshotWriter
from tfgpu_magic.machine.board.viewers import LOCK
from tfgpu_magic.machine.see import Watch


def cache(homes: Path) -> Path:
    """Return the folder of this machine and boot in the user's cache."""
    return homes / f"home/.cache/tfgpu_magic/{os.uname().nodename}-{directory.boot_id():08x}"


def test_a_directory_that_is_named_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path))

    assert directories() == (str(tmp_path),)


def test_it_follows_from_the_user_alone_whatever_the_environment(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = directories()
    for name in ("XDG_RUNTIME_DIR", "TMPDIR", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(homes))

    assert directories() == bare == (f"{homes}/tmp/tfgpu_magic-{os.geteuid()}", str(cache(homes)))


def test_a_home_that_several_machines_share_has_a_folder_for_each_of_them_and_each_boot(
    homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {directories()[-1]}
    monkeypatch.setattr(directory, "boot_id", lambda: 77)
    found.add(directories()[-1])
    name = SimpleNamespace(nodename="another")
    monkeypatch.setattr(os, "uname", lambda: name)
    found.add(directories()[-1])

    assert len(found) == 3
    assert {Path(path).parent for path in found} == {homes / "home/.cache/tfgpu_magic"}


@root_only
@pytest.mark.parametrize("how", ["directory", "link"])
def test_nobody_can_switch_off_anothers_board_and_the_administrator_is_asked(homes: Path, how: str) -> None:
    squatted = homes / "tmp" / "tfgpu_magic-0"
    squatted.mkdir(mode=0o700) if how == "directory" else squatted.symlink_to(homes / "home")
    os.chown(squatted, NOBODY, NOBODY, follow_symlinks=False)
    with BoardDirectory() as here:
        assert here.path == cache(homes)
        assert str(squatted) in here.passed_over
        assert "Ask your administrator to remove it" in here.passed_over


@pytest.mark.parametrize(
    ("what", "reports"), [("boot", False), ("simulated machine", False), ("pids", True), ("devices", True)]
)
def test_another_machine_has_files_of_its_own_and_another_view_of_the_gpus_a_board(
    folder: Path,
    writer: SnapshotWriter,
    here: BoardDirectory,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    reports: bool,
) -> None:
    writer.publish(snapshot(3))
    if what == "boot":
        monkeypatch.setattr(directory, "boot_id", lambda: 77)
    elif what == "simulated machine":
        monkeypatch.setenv(SIMULATED, "/somewhere/machine")
    elif what == "pids":
        monkeypatch.setattr(os, "readlink", lambda _: "pid:[77]")
    else:
        monkeypatch.setattr(directory, "_devices", lambda: ["null"])
    with BoardDirectory(folder) as there:
        assert SnapshotReader(there).read().snapshot is NOTHING
        assert not there.is_same(here)
        assert [there.full_name(name) == here.full_name(name) for name in (SNAPSHOT, LOCK)] == [False, False]
        assert (there.full_name(f"{PREFIX}1-7") == here.full_name(f"{PREFIX}1-7")) == reports
        assert there.simulated == (what == "simulated machine")


@pytest.fixture
def unknowable(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that cannot be looked into, as with an expired ticket: the system's error is not that there is none."""
    home = homes / ("h" * 300)
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_dir=str(home)))
    return home


def test_a_home_that_cannot_be_looked_into_is_no_place_for_a_board_and_no_trouble(unknowable: Path) -> None:
    with BoardDirectory() as here:
        assert (here.path.parent.name, here.passed_over) == ("tmp", "")


def test_a_directory_that_cannot_be_looked_into_is_refused_in_a_sentence(
    unknowable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(unknowable / "board"))

    with pytest.raises(MonitorError, match=r"cannot be used \(.*Name another directory in TFGPU_MAGIC_DIR\.$"):
        BoardDirectory()


def test_looks_go_on_beside_a_home_that_cannot_be_looked_into(
    unknowable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_start, "Start", lambda *_: None)
    with Watch() as one:
        assert one.read().snapshot is NOTHING
        assert one.report_files.read() == ()


def test_it_and_its_files_are_for_nobody_else(folder: Path, here: BoardDirectory, writer: SnapshotWriter) -> None:
    writer.publish(snapshot())
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / here.full_name(SNAPSHOT))]

    assert modes == [0o700, 0o600]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("link", "is a link"),
        ("file", r"TFGPU_MAGIC_DIR\.$"),
        ("open to others", r"open to other users \(mode 755; chmod 700 closes it\)"),
        pytest.param("another's", f"belongs to another user \\({NOBODY}, and you are 0\\)", marks=root_only),
    ],
)
def test_one_that_is_not_ours_alone_is_refused(tmp_path: Path, folder: Path, how: str, said: str) -> None:
    if how == "file":
        folder.write_text("")
    elif how == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "target")
    else:
        folder.mkdir()
        folder.chmod(0o755 if how == "open to others" else 0o700)
        os.chown(folder, *([NOBODY, NOBODY] if how == "another's" else [-1, -1]))

    with pytest.raises(MonitorError, match=said):
        BoardDirectory()


@pytest.mark.parametrize("how", ["link", "hard link", "pipe", "directory", pytest.param("another's", marks=root_only)])
def test_a_file_that_is_not_plain_or_not_ours_is_refused_at_once(
    tmp_path: Path, folder: Path, here: BoardDirectory, how: str
) -> None:
    (tmp_path / "precious").write_text("precious")
    lock = folder / here.full_name(LOCK)
    if how == "link":
        lock.symlink_to(tmp_path / "precious")
    elif how == "hard link":
        lock.hardlink_to(tmp_path / "precious")
    elif how == "pipe":
        os.mkfifo(lock)
    elif how == "directory":
        lock.mkdir()
    else:
        lock.touch()
        os.chown(lock, NOBODY, NOBODY)

    with pytest.raises(MonitorError, match=r"(not a plain file of your own|cannot be opened).*Remove it\.$"):
        here.open(LOCK, os.O_RDWR | os.O_CREAT)


def test_a_link_at_the_boards_place_is_replaced_and_its_target_left_alone(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    with BoardDirectory() as here:
        (folder / here.full_name(SNAPSHOT)).symlink_to(tmp_path / "precious")
        SnapshotWriter(here).publish(snapshot())

    assert (tmp_path / "precious").read_text() == "precious"
    assert not (folder / here.full_name(SNAPSHOT)).is_symlink()
