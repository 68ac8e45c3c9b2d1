"""PyTorch: its stage, figures, arrays and errors, and how it is told what it may take, in `framework`."""
