"""This process's client of the fork server, from which every isolated call gets its worker process."""

from __future__ import annotations

import atexit
import os

from tfgpu_magic.isolate.preload import PRELOAD
from tfgpu_magic.isolate.process.forkserver_client import ForkServerClient

FORK_SERVER = ForkServerClient(PRELOAD)
"""The one client of this process. In a child that is forked from this process it has no fork server."""

os.register_at_fork(after_in_child=FORK_SERVER.forget)
atexit.register(FORK_SERVER.stop)
