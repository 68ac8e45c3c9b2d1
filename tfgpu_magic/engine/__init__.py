"""One engine: it makes the plan of every framework and enforces it, for users, administrators and restarts."""
