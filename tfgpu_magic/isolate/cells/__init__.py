"""Isolated cells: `%%tf_gpu isolate` in the notebook's kernel; `process.shell` runs the cell in its own process."""
