"""The board: the files by which a user's processes tell one another of the GPUs, and who reads and writes them."""
