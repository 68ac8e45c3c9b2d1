"""TensorFlow, PyTorch and JAX in this process: a module each; `registry` lists them."""
