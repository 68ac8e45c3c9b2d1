"""The worker process of an isolated call: how it is started, which messages it exchanges, and how it ends."""
