"""A simulated machine with neighbours on it, to show what the package does where there is no GPU."""
