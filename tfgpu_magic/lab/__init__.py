"""What a machine of many users runs once for all of them: the service that reads its GPUs, and what tells of them."""
