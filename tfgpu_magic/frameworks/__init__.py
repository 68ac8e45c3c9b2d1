"""TensorFlow, PyTorch and JAX, of one kind: a module each, which `registry` loads when somebody asks for frameworks."""

NAMES = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX"}
"""The frameworks: the module that people import, with the name that views show, in the order in which they show it."""
