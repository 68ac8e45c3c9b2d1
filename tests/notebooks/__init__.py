"""The notebooks, run from top to bottom in real kernels on the simulated machine that scripts/demo makes."""
