"""The commands that need more than a shell: `python -m scripts._demo` and its like, from the repository's root."""
