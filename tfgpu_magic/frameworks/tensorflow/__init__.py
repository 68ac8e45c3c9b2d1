"""TensorFlow: its stage, its settings of devices, its figures, arrays and errors, and Keras with it."""
