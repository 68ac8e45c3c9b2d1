"""Compiling the simulator: once, by the first process that needs it, and with words when it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

_CREATE = "from tfgpu_magic.simgpu import Machine; m = Machine.create(); print(len(m.gpus())); m.close()"
_IMPORT = "import tfgpu_magic.simgpu"


def start(cache: Path, code: str = _CREATE, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **variables}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_importing_it_compiles_nothing(tmp_path: Path) -> None:
    with start(tmp_path, _IMPORT) as process:
        assert process.communicate() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_racing_builders_end_with_one_build(tmp_path: Path) -> None:
    racers = [start(tmp_path) for _ in range(3)]
    assert [racer.communicate()[0].strip() for racer in racers] == ["1", "1", "1"]

    assert len(list((tmp_path / "tfgpu_magic").iterdir())) == 1


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path) -> None:
    with start(tmp_path, CC="no-such-compiler") as process:
        error = process.communicate()[1]

    assert "SimulatorError: the simulated GPU machine is made with a C compiler, and 'no-such-compiler'" in error
    assert "apt install gcc" in error


@pytest.mark.parametrize("wrong", ["no lzma", "no archive", "cut short"])
def test_an_archive_that_cannot_be_unpacked_is_compiled_instead(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "large").write_bytes(os.urandom(2**20))
    with tarfile.open(archive := tmp_path / "archive", "w:xz") as made:
        made.add(tmp_path / "large", "large")
    if wrong != "no lzma":
        archive.write_bytes(archive.read_bytes()[: 2**19] if wrong == "cut short" else b"nothing")
    code = f"""
import pathlib, sys
{"sys.modules['lzma'] = None" if wrong == "no lzma" else ""}
from tfgpu_magic.simgpu import build
build.prebuilt_in = lambda _: pathlib.Path({str(archive)!r})
build.libraries()
"""
    with start(tmp_path, code, CC="no-such-compiler") as process:
        error = process.communicate()[1]

    assert "SimulatorError: the simulated GPU machine is made with a C compiler, and 'no-such-compiler'" in error
    assert list((tmp_path / "tfgpu_magic").iterdir()) == []


def test_a_failing_compiler_is_quoted_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with start(tmp_path, CC="sh -c 'echo broken >&2; exit 1'") as process:
        error = process.communicate()[1]

    assert "could not make the simulated GPU machine's libtfgpusim.so:\nbroken" in error
    assert list((tmp_path / "tfgpu_magic").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_replaced_by_a_private_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "tmp").mkdir()
    with start(tmp_path / "file", TMPDIR=str(tmp_path / "tmp")) as process:
        assert process.communicate()[0].strip() == "1"

    [private] = (tmp_path / "tmp").iterdir()
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_a_private_folder_that_others_can_enter_is_not_trusted(tmp_path: Path, mode: int) -> None:
    (tmp_path / "file").write_text("in the way")
    trap = tmp_path / "tmp" / f"tfgpu_magic-simgpu-{os.getuid()}"
    trap.mkdir(parents=True)
    trap.chmod(mode)
    with start(tmp_path / "file", TMPDIR=str(tmp_path / "tmp")) as process:
        assert "nowhere to keep the simulator's libraries" in process.communicate()[1]


def test_the_sources_compile_without_a_warning(tmp_path: Path) -> None:
    with start(tmp_path, CC="cc -Werror") as process:
        assert process.communicate() == ("1\n", "")
