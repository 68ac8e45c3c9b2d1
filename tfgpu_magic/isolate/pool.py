"""This process's client of a fork server, and so the one way to processes for calls."""

from __future__ import annotations

import atexit
import os

from tfgpu_magic.isolate.preload import PRELOAD
from tfgpu_magic.isolate.process.forkserver_client import ForkServerClient

FORK_SERVER = ForkServerClient(PRELOAD)
"""There is one for a process. A child that was forked of it has a client without a fork server."""

os.register_at_fork(after_in_child=FORK_SERVER.forget)
atexit.register(FORK_SERVER.stop)
