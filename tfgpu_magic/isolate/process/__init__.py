"""The worker process of an isolated call: how it is started, which messages it exchanges, and how it ends."""

PRELOAD = ["tensorflow", "keras", "cloudpickle", "tfgpu_magic.engine.engine", "tfgpu_magic.isolate.process.shell"]
"""The modules that the fork server imports before the first call; one that is not installed is left out."""
