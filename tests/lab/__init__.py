"""What a machine of many users runs once for all of them."""
