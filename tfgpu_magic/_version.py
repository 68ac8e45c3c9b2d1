"""The package's version: it stands apart, so that whoever compares it needs nothing of the package."""

__version__ = "0.1.0"
