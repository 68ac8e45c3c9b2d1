"""What is sent between processes: values, TensorFlow's objects in plain form, and exceptions."""
