"""What crosses processes: values, TensorFlow's objects as plain ones, exceptions."""
