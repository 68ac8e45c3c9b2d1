"""Isolated cells: `%%tf_gpu isolate`."""
