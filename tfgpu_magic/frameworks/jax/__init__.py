"""JAX: its stage, figures, arrays, errors and plan in `framework`; the variables that it reads in `settings`."""
