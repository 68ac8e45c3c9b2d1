"""A call or a cell in a process of its own, which gives its GPU memory back when it ends."""
