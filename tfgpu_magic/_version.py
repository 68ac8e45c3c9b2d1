"""The package's version, in a module of its own: the rooms need not reach up to the package for it."""

__version__ = "1.0.0"
