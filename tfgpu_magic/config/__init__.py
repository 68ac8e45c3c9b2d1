"""From the words of `%tf_gpu` to a policy, from that to a plan, and from that to TensorFlow's settings."""
