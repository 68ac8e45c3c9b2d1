"""Imported last by the process that tests are forked from: what it has is no matter to their garbage collectors.

A collection would look at each of TensorFlow's objects, and copy the memory of all: a fifth of a second for each fork.
"""

import gc

gc.collect()
gc.freeze()
