"""What a cell did to memory, and what holds it: data and decisions; `views` draws them."""
