"""IPython magics for TensorFlow's GPU memory."""
