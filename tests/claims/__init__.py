"""What processes and calls claim of the GPUs."""
