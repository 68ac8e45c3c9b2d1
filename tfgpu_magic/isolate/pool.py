"""This process's keeper of a nursery, and so the one way to processes for calls."""

from __future__ import annotations

import atexit
import os

from tfgpu_magic.isolate.preload import PRELOAD
from tfgpu_magic.isolate.process.keeper import Keeper

KEEPER = Keeper(PRELOAD)
"""There is one for a process. A child that was forked of it has a keeper without a nursery."""

os.register_at_fork(after_in_child=KEEPER.forget)
atexit.register(KEEPER.stop)
