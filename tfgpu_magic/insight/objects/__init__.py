"""What holds memory of the GPUs, by name: the arrays, what leads to them, and what they take together."""
