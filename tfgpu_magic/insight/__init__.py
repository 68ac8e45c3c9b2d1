"""What a cell, a call or the whole session did to GPU memory: measured, and kept as plain data; `views` draws it."""
