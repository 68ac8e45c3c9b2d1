"""Parking: moves a process's GPU state into host memory and back, through one parker for each user."""

RECORD = "parked-1"
"""The name of the parker's record on the board, with the version of its content."""
