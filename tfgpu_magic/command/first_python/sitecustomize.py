"""Applies the policy of `tfgpu run` in the first Python that starts, before its program; the site's own comes after it.

`run` puts this folder on PYTHONPATH. Neither the program nor what it starts is to find it there, so environment and
`sys.path` are put back first. Python would go on after an error here, without the policy, so each ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import traceback


def _begin() -> int:
    """Apply the policy, and return 0, or the exit status with which the program is not to begin."""
    asked = json.loads(os.environ.pop("TFGPU_RUN"))
    path = asked.pop("path")
    if path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path
    sys.path.remove(os.path.dirname(__file__))  # noqa: PTH120  # as PYTHONPATH has it
    del sys.modules[__name__]
    if "reached" in asked:  # all that `run` wants to know
        return int(asked["reached"])
    try:
        from tfgpu_magic.command.main import begin  # of this Python, which may have none
    except ImportError as error:
        print(f"tfgpu: {sys.executable}: {error}", file=sys.stderr)
        return 2
    return begin(asked)


try:
    status = _begin()
except BaseException:
    traceback.print_exc()
    status = 2
if status:
    os._exit(status)
import sitecustomize  # noqa: E402, F401  # where there is no other, Python expects the error
