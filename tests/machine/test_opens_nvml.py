"""Which modules may open NVML. Which files processes share, `server.test_files` counts."""

from __future__ import annotations

import re
from pathlib import Path

from tfgpu_magic import errors

PACKAGE = Path(errors.__file__).parent
CALLS_NVML = re.compile(r"^\s*(import pynvml|from [\w.]+ import .*\bNvmlReader\b)", re.MULTILINE)


def test_only_who_collects_who_sets_limits_and_the_child_that_judges_the_driver_call_nvml() -> None:
    """Whoever imports the reader or nvidia-ml-py could open NVML; names of errors and of limits open nothing."""
    found = {
        ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        for file in PACKAGE.rglob("*.py")
        if CALLS_NVML.search(file.read_text())
    }

    assert found == {"machine.driver.nvml", "machine.collector", "doctor.cuda_child", "root.driver"}
