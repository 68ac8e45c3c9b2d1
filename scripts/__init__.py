"""The commands that need more than a shell: `python -m scripts._docs` and its like, from the repository's root."""
