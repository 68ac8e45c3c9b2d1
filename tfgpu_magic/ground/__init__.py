"""What rooms share: snapshots, reports, rows, answers, and what draws them. It imports nothing else of ours."""

TENSORFLOW = "TensorFlow"
"""The framework whose policy `%tf_gpu` sets; views show its figures in a place of their own, beside the policy."""
