"""Isolated calls as tasks of a Dask cluster."""
