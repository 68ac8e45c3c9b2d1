"""The table of who holds what: its rows from all that is known, for every view."""
