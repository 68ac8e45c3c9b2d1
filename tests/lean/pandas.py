"""Stands before pandas, as if it were not installed; see `tests.jupyter.LEAN`."""

raise ImportError
