"""The server extension, on a real Jupyter Server."""
