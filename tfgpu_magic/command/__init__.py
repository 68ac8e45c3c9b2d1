"""The command `tfgpu`: a command is a module, which is imported when it is given, and an entry of `table`."""
