"""What rooms share: snapshots, reports, rows, answers, and what draws them. It imports nothing else of ours."""
