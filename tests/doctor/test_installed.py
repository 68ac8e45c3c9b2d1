"""What is loaded and configured: the kernel module, the board and its collector, policy and ceiling.

Variables, and a board that others can read, are scenes of `tests/transcript/scenes.py`.
"""

from __future__ import annotations

import os
import pwd
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.doctor.looking import look
from tests.machine.boards import collectors, end_collectors, the_collector
from tests.waiting import until
from tfgpu_magic.doctor.machine import ThisMachine as Here
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.machine.board import directory, machine_board
from tfgpu_magic.machine.board.machine_board import MachineDirectory
from tfgpu_magic.machine.board.snapshot_file import SnapshotWriter
from tfgpu_magic.machine.driver.nvml_errors import MODULE as FILE
from tfgpu_magic.machine.see import Watch
from tfgpu_magic.simgpu import Machine

# --- the driver's own files ---

_PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC 12"
_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (dvs-builder@U16)\n"


def beside(snapshot: Snapshot, root: Path = Path("/")) -> Here:
    """Return a machine whose driver has answered so."""
    here = Here(root, {})
    vars(here)["snapshot"] = snapshot
    return here


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (_PROPRIETARY, ["The proprietary one, 535.183.01."]),
        (_OPEN, ["The open one, 570.86.10."]),
        (None, []),
    ],
)
def test_the_kernel_module_is_told_by_its_file(text: str | None, found: list[str], tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / FILE[1:]).parent.mkdir(parents=True)
        (tmp_path / FILE[1:]).write_text(text)
    report = look("kernel_module", here=beside(Snapshot(time=1e9, error="none", absent=True), tmp_path))

    assert [row["found"] for row in report.rows] == found


def test_where_nvidia_ml_py_is_missing_no_other_tool_is_sent_for() -> None:
    report = look("driver", here=beside(Snapshot(time=1.0, error="Install it: pip install nvidia-ml-py", unasked=True)))

    assert report.names == ["driver.unasked"]
    assert "nvidia-smi" not in str(report.rows)


def test_a_mig_gpu_without_an_instance_is_a_fault() -> None:
    cut = Snapshot(time=1e9, driver="570", gpus=(Gpu(index=0, name="NVIDIA A100", mig=True),))

    assert look("gpus", here=beside(cut)).of("fault") == ["gpus.mig-empty"]


# --- the board ---


@pytest.fixture
def folder(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The board's directory; whatever collector the test has left is ended."""
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    yield tmp_path / "board"
    end_collectors(machine)


def test_nobody_looks_and_the_doctor_starts_no_collector(folder: Path, machine: Machine) -> None:
    report = look("board")

    assert report.names == ["board.directory"]
    assert report.facts("board.directory")["directory"] == str(folder)
    assert collectors(machine) == []


@pytest.mark.usefixtures("folder")
def test_a_collector_that_gives_no_sign_hangs_and_one_that_has_ended_does_not(machine: Machine) -> None:
    with Watch(linger=600) as live:
        until(lambda: live.wait().snapshot.gpus)
        alive = look("board")
        the_collector(machine).send_signal(signal.SIGSTOP)
        stopped = until(lambda: look("board"), lambda report: report.of("fault"))
        end_collectors(machine)
        gone = until(lambda: look("board"), lambda report: not report.of("fault"))

    assert stopped.of("fault") == ["board.hangs"]
    assert alive.names == gone.names == ["board.directory"]


def test_the_board_of_all_users_is_told(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFGPU_SIMGPU", str(tmp_path / "machine"))
    (tmp_path / "machine.run").mkdir(mode=0o755)
    writer = SnapshotWriter(MachineDirectory())
    writer.publish(Snapshot(time=time.time()), due=time.time() + 3600)
    read = look("board")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(machine_board, "view_id", lambda: 77)
        other = look("board")
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda now=time.time: now() + 20)
        stale = look("board")
    (tmp_path / "machine.run").chmod(0o777)
    unread = look("board")

    assert read.names == ["board.directory", "board.machine"]
    assert read.facts("board.machine")["directory"] == str(tmp_path / "machine.run")
    assert stale.of("fault") == ["board.machine-hangs"]
    assert "is of other GPUs than are seen here (none)" in other.facts("board.machine-unread")["why"]
    assert "by others" in unread.facts("board.machine-unread")["why"]


@pytest.mark.usefixtures("folder")
def test_a_service_that_is_to_run_and_does_not_is_told(tmp_path: Path) -> None:
    enabled, running = tmp_path / "etc/systemd/system/multi-user.target.wants", tmp_path / "sys/fs/cgroup/system.slice"
    enabled.mkdir(parents=True)
    for unit in ("tfgpu-collector.service", "tfgpu-exporter.service"):
        (enabled / unit).symlink_to(f"/etc/systemd/system/{unit}")
    (sockets := enabled.with_name("sockets.target.wants")).mkdir()
    (sockets / "tfgpu-exporter.socket").touch()
    in_a_container = look("board", here=Here(tmp_path, {}))
    (running / "tfgpu-collector.service").mkdir(parents=True)
    report = look("board", here=Here(tmp_path, {}))

    assert in_a_container.of("warning") == []
    assert report.of("warning") == ["board.service-away"]
    assert report.facts("board.service-away") == {"unit": "tfgpu-exporter.service"}


def test_who_is_in_the_way_of_the_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFGPU_MAGIC_DIR", raising=False)
    monkeypatch.setattr(directory, "_TEMPORARY", tmp_path)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "home")))
    (taken := tmp_path / f"tfgpu_magic-{os.geteuid()}").symlink_to(tmp_path)
    report = look("board")

    assert report.names == ["board.elsewhere"]
    assert f"{taken} is a link" in report.facts("board.elsewhere")["why"]


# --- the administrator's settings ---


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a default profile of IPython's."""
    for name in ("TFGPU_POLICY", "TFGPU_CEILING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    folder = tmp_path / "ipython" / "profile_default"
    folder.mkdir(parents=True)
    return folder


def test_where_nothing_is_set_that_is_said_and_no_profile_is_made(
    tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "new"))

    assert look("policy").names == ["policy.none"]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "names", "ceiling"),
    [
        ('ceiling = "limit 40%"\nquiet = 5', ["policy.wrong", "policy.under"], "limit 40%"),
        ("ceiling = limit 40%", ["policy.wrong", "policy.under"], "visible none"),
    ],
)
def test_the_administrators_file_is_looked_at_too(
    profile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, names: list[str], ceiling: str
) -> None:
    file = tmp_path / "tfgpu_magic.toml"
    file.write_text(text)
    code = f"import pathlib\nfrom tfgpu_magic import policy\npolicy.FILE = pathlib.Path({str(file)!r})\n"
    (tmp_path / "sitecustomize.py").write_text(code)  # in place of the one in /etc
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (profile / "ipython_config.py").write_text("get_config().InteractiveShellApp.extra_extensions = ['tfgpu_magic']")
    report = look("policy")

    assert report.names == names
    assert str(file) in report.rows[0]["found"]
    assert report.facts("policy.under") == {"ceiling": ceiling, "where": str(file)}


LOADED = "c = get_config()\nc.InteractiveShellApp.extra_extensions = ['tfgpu_magic']\n"
LISTED = "c = get_config()\nc.InteractiveShellApp.extensions = ['tfgpu_magic']\n"


@pytest.mark.parametrize(
    ("environ", "config", "more", "names", "told"),
    [
        (
            {"TFGPU_CEILING": "limit 25%"},
            f"{LISTED}c.TfGpuMagics.policy = 'growth'\nc.TfGpuMagics.ceiling = 'limit 40%'",
            {},
            ["policy.set", "policy.under"],
            {"policy": "growth", "ceiling": "limit 25%", "where": "$TFGPU_CEILING and the configuration ({config})"},
        ),
        (
            {"TFGPU_POLICY": "limit 25%"},
            "get_config().TfGpuMagics.policy = 'growth'",
            {},
            ["policy.set", "policy.not-loaded"],
            {"policy": "limit 25%", "where": "$TFGPU_POLICY"},
        ),
        (
            {"TFGPU_POLICY": "limti 40%", "TFGPU_CEILING": "at most 40%"},
            "",
            {},
            ["policy.misspelt", "policy.wrong", "policy.not-held"],
            {"instead": "growth", "ceiling": "limit 40%"},
        ),
        (
            {},
            f"{LOADED}c.TfGpuMagics.quiet = 'yes'\nc.TfGpuMagics.cieling = 'limit 40%'",
            {},
            ["policy.wrong", "policy.wrong", "policy.under"],
            {"ceiling": "limit 40%"},  # what a kernel has
        ),
        ({}, "", {"config.json": '{"TfGpuMagics": "limit 40%"}'}, ["policy.wrong", "policy.none"], {}),
        (
            {},
            f"{LISTED}c.TfGpuMagics.ceiling = 'limit 40%'",
            {"kernel_config.py": "get_config().InteractiveShellApp.extensions = ['autoreload']"},
            ["policy.not-held"],  # a user's list replaces the administrator's
            {},
        ),
        ({}, "1 / 0", {}, ["policy.broken"], {"why": "ZeroDivisionError: division by zero"}),  # not that nothing is set
        (
            {},
            "1 / 0",
            {"kernel_config.json": '{"TfGpuMagics": {"policy": "growth"}}'},
            ["policy.broken", "policy.set", "policy.not-loaded"],
            {"policy": "growth"},
        ),
        ({}, "get_config().InteractiveShell.colors = 5", {}, ["policy.fails"], {}),
    ],
)
def test_policy_and_ceiling_are_told_with_where_they_are_set_and_what_is_wrong_there(
    environ: dict[str, str],
    config: str,
    more: dict[str, str],
    names: list[str],
    told: dict[str, str],
    profile: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for name, text in {"config.py": config, **more}.items():
        (profile / f"ipython_{name}").write_text(text)
    report = look("policy")
    facts = {name: fact for row in report.rows for name, fact in row["facts"].items()}

    assert report.names == names
    assert facts == facts | {name: fact.format(config=profile / "ipython_config.py") for name, fact in told.items()}


def test_a_configuration_that_never_ends_is_given_up(profile: Path, impatient: None) -> None:
    (profile / "ipython_config.py").write_text("while True: pass")

    assert look("policy").names == ["policy.fails"]
