"""Where processes of one user meet, as people met it: one place for all, in which nobody's files are touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.machine.boards import root_only
from tests.machines import machine_of
from tests.processes import QUIET
from tfgpu_magic.doctor.checks import board
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.machine.board import directory
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.simgpu import Machine

LOOK = "from tfgpu_magic.machine.see import Watch\nwith Watch(linger=1) as live: print(live.wait(60).age is not None)"
DAYS = 86400.0


machine = machine_of("1x16GiB")


def test_machine_1_no_file_is_touched_in_a_directory_that_somebody_names(machine: Machine, tmp_path: Path) -> None:
    """A directory of one's own, in which everything is forty days old, and some of it is called as our files are."""
    own = tmp_path / "ann"
    own.mkdir(mode=0o700)
    names = (".bashrc", "data.csv", "id_ed25519", "weights-1a2b3c4d", "lock-1a2b3c4d", "asked")
    for name in (
        *names,
        "report-3-1-1a2b3c4d-5e6f7a8b",
        "claims-1a2b3c4d",
        "snapshot",
        "snapshot-1a2b3c4d",
        "new-history",
    ):
        (own / name).write_text(name)
    (own / "olddir").mkdir()
    before = {path.name for path in own.iterdir()}
    for path in own.iterdir():
        os.utime(path, (0, time.time() - 40 * DAYS))
    env = {**machine.environ(), **QUIET, "TFGPU_MAGIC_DIR": str(own)}
    looked = subprocess.run([sys.executable, "-c", LOOK], env=env, capture_output=True, text=True, check=True)

    assert looked.stdout == "True\n"
    after = {path.name for path in own.iterdir()}
    assert any(name.startswith("snapshot-") for name in after - before)  # it was the board's directory
    assert before <= after
    assert {path.name for path in own.iterdir() if path.is_file() and path.read_bytes() == path.name.encode()} == (
        before - {"olddir"}
    )


def test_machine_1_nobody_is_told_to_remove_a_directory_that_they_have_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path))

    with pytest.raises(Exception, match="is open to other users") as refused:
        BoardDirectory()
    assert "Remove it" not in str(refused.value)
    assert str(refused.value).endswith("Name another directory in TFGPU_MAGIC_DIR.")


MEET = """
import os, subprocess, sys
from pathlib import Path
subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
SAY = '''
import sys
from tfgpu_magic.claims.ledger import ClaimLedger
from tfgpu_magic.ground.report import Report
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFile, ReportFiles
file = ReportFile()
file.post(Report(pid=1, summary=sys.argv[1]))
TABLE = ClaimLedger()
with TABLE.transaction() as page:
    print([one.summary for one in ReportFiles(BoardDirectory()).read()], TABLE.slot, flush=True)
sys.stdin.read()
'''
def start(name):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", SAY, name], **pipes)
    return process, process.stdout.readline().strip()
before, said = start("before")
Path(f"/run/user/{os.geteuid()}").mkdir(parents=True)  # a login
after, heard = start("after")
print(said, heard, sep="\\n")
for process in (before, after):
    process.communicate("")
"""


@root_only
def test_jupyter_6_a_login_in_between_makes_no_second_ledger(machine: Machine) -> None:
    """A kernel from before a login and one from after it are in each other's sight, and take numbers of one ledger."""
    environment = {name: value for name, value in machine.environ().items() if name != "TFGPU_MAGIC_DIR"}
    command = ["unshare", "--mount", sys.executable, "-c", MEET]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()

    assert said[0].startswith("[] ")
    assert said[1].startswith("['before'] ")
    assert said[0].split()[-1] != said[1].split()[-1]


APART = """
import sys
from pathlib import Path
from tfgpu_magic.machine.board import directory
directory._TEMPORARY = Path(sys.argv[1])
with directory.BoardDirectory() as place:
    print(place.path, flush=True)
    sys.stdin.read()
"""


@root_only
@pytest.mark.parametrize("private", [True, False])
def test_machine_10_the_doctor_finds_a_process_that_has_a_tmp_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, private: bool
) -> None:
    """As in a unit with `PrivateTmp=yes`: a mount of its own where the others have theirs."""
    monkeypatch.delenv("TFGPU_MAGIC_DIR")
    monkeypatch.setattr(directory, "_TEMPORARY", tmp_path)
    mount = f"mount -t tmpfs none {tmp_path} && " if private else ""
    command = ["unshare", "--mount", "sh", "-c", f'{mount}exec "$0" "$@"', sys.executable, "-c", APART, str(tmp_path)]
    with (
        BoardDirectory() as here,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
    ):
        assert other.stdout is not None
        assert other.stdout.readline().strip() == str(here.path)
        found = {one.name: one.facts for one in board.board(ThisMachine())}
        other.communicate("")

    assert found.get("board.private-tmp", {}).get("pid") == (other.pid if private else None)
