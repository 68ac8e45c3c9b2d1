"""A cause is proved, or not named: other people's reports of drivers, containers, schedulers and memory of nobody's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.lab.users import root_only

HIDDEN = """
import ctypes, encodings.idna, os, subprocess, traceback  # as root: another user may not reach this Python
from pathlib import Path
from tests.magic.test_server_client import SECRET, listening, tell
from tfgpu_magic.notebook import server_client

subprocess.run(["mount", "-t", "proc", "-o", "hidepid=1", "proc", "/proc"], check=True)
os.setgroups([])
os.setresgid(12345, 12345, 12345)
os.setresuid(12345, 12345, 12345)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
with listening() as ours:
    tell(Path(os.environ["JUPYTER_RUNTIME_DIR"]), ours.port)
    kernel = os.fork()
    if not kernel:
        try:
            found = server_client.find("0123-abc")
            print(found if isinstance(found, str) else found.token, flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.waitpid(kernel, 0)
"""
"""A server of a user's, started by root, and what its kernel finds, where /proc shows nobody others' processes."""


@root_only
def test_jupyter_8_a_kernel_finds_its_server_where_the_ancestors_above_are_hidden() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        done = subprocess.run(
            ["unshare", "--mount", sys.executable, "-c", HIDDEN],
            env={**os.environ, "JUPYTER_RUNTIME_DIR": folder},
            capture_output=True,
            text=True,
        )

    assert (done.stdout, done.stderr) == ("the-token\n", "")
