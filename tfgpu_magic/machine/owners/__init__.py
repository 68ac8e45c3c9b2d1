"""Whose a process is."""
