"""What a cell did to GPU memory, what holds it, and why it ran out: data and decisions. `answers` draws them."""
