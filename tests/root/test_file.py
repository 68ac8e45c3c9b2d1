"""The administrator's table of limits is taken as root wrote it, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.root import file, trust
from tfgpu_magic.root.file import UNLIMITED, Limits, Mistake, parse, read

WRITTEN = b"""
policy = "growth"

[limits]
hard = "40%"
soft = "10%"
groups.staff = { hard = "90%" }
groups.1005 = { hard = "none" }
users.ann = { soft = "20GiB", hard = "60 GiB" }
paths."/sys/fs/cgroup/batch.slice" = { hard = "50%" }
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of whom this is run by, who is root to it."""
    monkeypatch.setattr(trust, "ROOT", os.getuid())
    path = tmp_path / "tfgpu_magic.toml"
    path.write_bytes(WRITTEN)
    path.chmod(0o644)
    return path


@pytest.mark.parametrize(
    ("names", "groups", "limits"),
    [
        ({"bob"}, {"users"}, ("10%", "40%")),
        ({"eve"}, {"staff"}, ("10%", "90%")),  # what the group's entry leaves out is everybody's
        ({"eve"}, {"1005", "staff"}, ("10%", "90%")),  # the first in the file
        ({"ann", "1001"}, {"staff"}, ("20GiB", "60 GiB")),
        ({"root", "0"}, {"root"}, ("", "")),
        ({"root", "0"}, {"staff"}, ("", "90%")),
    ],
)
def test_a_user_has_the_own_entry_else_the_first_groups_else_everybodys(
    names: set[str], groups: set[str], limits: tuple[str, str]
) -> None:
    rules = parse(WRITTEN)

    assert rules is not None
    assert rules.of(frozenset(names), frozenset(groups)) == limits
    assert rules.paths == {"/sys/fs/cgroup/batch.slice": Limits(hard="50%")}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), (0, UNLIMITED)),
        (Limits("none", "none"), (0, UNLIMITED)),
        (Limits("10%", "40%"), (8 * GIB, 32 * GIB)),
        (Limits("20GiB", "10%"), (8 * GIB, 8 * GIB)),  # no more can be guaranteed than may be held
        (Limits("1.5GiB", "30 GB"), (1536 * MIB, 30 * 10**9 // MIB * MIB)),
        (Limits("33.333%", ""), (int(80 * 1024 * 0.33333) * MIB, UNLIMITED)),
    ],
)
def test_amounts_are_bytes_or_shares_of_the_gpu_in_whole_mib(limits: Limits, expected: tuple[int, int]) -> None:
    assert limits.in_bytes(80 * GIB) == expected


@pytest.mark.parametrize(
    "text",
    [
        'limits = "40%"',
        "[limits",
        b"[limits]\nhard = '\xff%'".decode("latin-1"),
        '[limits]\nhart = "40%"',
        "[limits]\nhard = 40",
        '[limits]\nhard = "40"',
        '[limits]\nhard = "101%"',
        '[limits]\nhard = "0GiB"',
        '[limits]\nhard = "999999999TiB"',
        '[limits]\nhard = "-1GiB"',
        "[limits]\nhard = true",
        '[limits]\nusers = "ann"',
        '[limits]\nusers.ann = "4GiB"',
        '[limits]\ngroups.staff = { most = "4GiB" }',
        f"[limits]\nhard = {'[' * 20_000}",
    ],
)
def test_any_mistake_is_one_of_the_whole_file(text: str) -> None:
    with pytest.raises(Mistake, match=r"limits|TOML"):
        parse(text.encode("latin-1"))


def test_a_file_without_the_table_says_nothing_of_limits() -> None:
    assert parse(b"") is None
    assert parse(b'policy = "growth"') is None
    assert parse(b"[limits]") == file.Rules()


def test_what_root_wrote_is_read(written: Path) -> None:
    assert read(written) == WRITTEN
    assert read(written.with_name("none")) == b""


def linked(path: Path) -> Path:
    path.with_name("link").symlink_to(path)
    return path.with_name("link")


def piped(path: Path) -> Path:
    os.mkfifo(path.with_name("pipe"), 0o600)
    return path.with_name("pipe")


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        *((lambda path, mode=mode: path.chmod(mode), "not root's alone") for mode in (0o666, 0o664, 0o646)),
        (lambda _: setattr(trust, "ROOT", os.getuid() + 1), "not root's alone"),
        (linked, "is a link"),  # whatever it leads to
        (piped, r"not root's alone|cannot be read"),  # which keeps nobody waiting
        (lambda path: path.parent, r"not root's alone|cannot be read"),
        (lambda path: os.truncate(path, 2**40), "more than 64 KiB"),
    ],
)
def test_what_root_did_not_write_is_not_read(written: Path, plant: Callable[[Path], Path | None], why: str) -> None:
    path = plant(written) or written

    with pytest.raises(Mistake, match=why):
        read(path)
