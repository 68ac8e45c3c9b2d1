"""Stands before rfc3987_syntax, as if it were not installed; see `tests.jupyter.LEAN`."""

raise ImportError
