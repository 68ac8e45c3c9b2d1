"""Asks the drivers: the sources and what reads them, when that is done, and one look in a child process."""
