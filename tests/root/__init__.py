"""What runs as root: the file, the cgroups, the driver, and what others can do about it."""
