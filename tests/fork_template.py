"""Imported last by the process that tests are forked from: what each of them would import is there, and is frozen.

A garbage collection would look at each of TensorFlow's objects, and copy the memory of all: a fifth of a second for
each fork. Our package is there too, which takes a quarter of a second: none of it reads the environment when it is
imported, so each test finds it as if it had imported it itself.

TensorFlow waits for memory ten seconds before it raises that there is none. It has an option against that, which is set
here; a process that is `fresh`, and a kernel, have it wait as with users.
"""

import gc
import importlib
import pkgutil
import sys
from typing import Any

from tfgpu_magic import engine, frameworks, ground, insight, machine, notebook, policy, tell
from tfgpu_magic.insight import objects
from tfgpu_magic.machine import board, owners
from tfgpu_magic.notebook import loading, words

assert loading  # and with it what a session begins with
for room in (board, engine, frameworks, ground, insight, machine, notebook, objects, owners, policy, tell, words):
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)


def without_waiting(context: Any) -> None:
    """Have TensorFlow's contexts raise at once where memory is short."""
    config = context.Context.config.fget

    def told(self: Any) -> Any:
        made = config(self)
        made.gpu_options.experimental.disallow_retry_on_allocation_failure = True
        return made

    context.Context.config = property(told)


if "tensorflow" in sys.modules:
    without_waiting(sys.modules["tensorflow.python.eager.context"])
gc.collect()
gc.freeze()
