"""Imported last by the process that tests are forked from: what each of them would import is there, and is frozen.

A garbage collection would look at each of TensorFlow's objects, and copy the memory of all: a fifth of a second for
each fork. Our package is there too, which takes a quarter of a second: none of it reads the environment when it is
imported, so each test finds it as if it had imported it itself.
"""

import gc
import importlib
import pkgutil

from tfgpu_magic import engine, frameworks, insight, model, monitor, notebook, policy
from tfgpu_magic.insight import objects
from tfgpu_magic.monitor import board, owners, table
from tfgpu_magic.notebook import loading, words

assert loading  # and with it what a session begins with
for room in (board, engine, frameworks, insight, model, monitor, notebook, objects, owners, policy, table, words):
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)
gc.collect()
gc.freeze()
