"""Isolated cells: `%%tf_gpu isolate`, in the notebook's kernel (`cell`) and in the cell's own process (`shell`)."""
