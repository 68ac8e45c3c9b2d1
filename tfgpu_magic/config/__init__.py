"""Words to policy, policy to plan, plan to TensorFlow."""
