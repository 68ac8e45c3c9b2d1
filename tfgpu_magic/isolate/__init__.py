"""A cell that runs in a process of its own, and what goes there and comes back."""
