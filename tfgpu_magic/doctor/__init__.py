"""What `tfgpu doctor` finds out about a machine: a check is a module of `checks` and an entry of `table`."""
