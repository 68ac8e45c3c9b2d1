"""A simulated machine with neighbours, and the tour in JupyterLab: what the package does where there is no GPU."""
