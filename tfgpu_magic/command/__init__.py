"""The command `tfgpu`: a command is an entry of the table of words, and a module here, imported when it is given."""
