"""The package's version, in a module of its own: code that compares it need not import the package."""

__version__ = "0.1.0"
