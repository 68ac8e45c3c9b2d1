"""Every module can be imported on each Python that is promised, where what it needs is installed."""

from __future__ import annotations

import subprocess
import sys

EACH = """
import importlib, pkgutil
import tfgpu_magic
count = 0
for module in pkgutil.walk_packages(tfgpu_magic.__path__, "tfgpu_magic."):
    if not module.name.endswith(".__main__"):
        try:
            importlib.import_module(module.name)
            count += 1
        except ModuleNotFoundError as error:  # of an extra that is not installed
            assert not error.name.startswith("tfgpu_magic"), module.name
print(count)
"""


def test_every_module_can_be_imported() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", EACH], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 100
