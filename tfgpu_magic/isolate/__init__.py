"""Isolated calls and cells: each runs in a process of its own, which gives its GPU memory back when it ends."""
