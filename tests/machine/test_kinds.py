"""Which kinds of file processes share: few, each known here, and those of the collector JSON; and who opens NVML."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.machine.boards import fresh
from tests.waiting import until
from tfgpu_magic import errors
from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.ground.report import Report
from tfgpu_magic.machine.board import report_files
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFile
from tfgpu_magic.machine.see import look

if TYPE_CHECKING:
    from tfgpu_magic.machine.see import Watch
    from tfgpu_magic.simgpu import Machine

PACKAGE = Path(errors.__file__).parent
CALLS_NVML = re.compile(r"^\s*(import pynvml|from [\w.]+ import .*\bNvmlReader\b)", re.MULTILINE)

READ = {"snapshot", "history"}
"""What a collector writes."""
TOLD = {"report", "names", "claims"}
"""What kernels and servers tell."""
EMPTY = {"lock", "viewers", "asked"}
"""What has no content: a lock, and who looks or asks."""


def test_a_view_a_line_a_kernel_and_a_server_share_files_of_five_kinds(
    machine: Machine, live: Watch, machine_folder: Path
) -> None:
    until(live.look, fresh)
    look()
    until(lambda: live.history().times)
    kernel = ReportFile(BoardDirectory())
    kernel.post(Report(pid=1, summary="Here."))
    LEDGER.want(["GPU-0"])
    with BoardDirectory() as place:
        report_files.rename(place, "one", "/two.ipynb")
    found = [path for path in machine_folder.iterdir() if not path.name.endswith("-new")]
    kinds = {path: path.name.partition("-")[0] for path in found}

    assert {kind for path, kind in kinds.items() if path.stat().st_size} == READ | TOLD
    assert {kind for path, kind in kinds.items() if not path.stat().st_size} == EMPTY
    for path in [path for path, kind in kinds.items() if kind in READ]:
        for line in path.read_text().split("\n"):
            assert not line or isinstance(json.loads(line), dict)
    kernel.close()


def test_only_who_collects_who_sets_limits_and_the_child_that_judges_the_driver_call_nvml() -> None:
    """Whoever imports the reader or nvidia-ml-py could open NVML; names of errors and of limits open nothing."""
    found = {
        ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        for file in PACKAGE.rglob("*.py")
        if CALLS_NVML.search(file.read_text())
    }

    assert found == {"machine.driver.nvml", "machine.collector", "doctor.cuda_child", "root.driver"}
