"""What a machine of many users runs for all of them: the service that reads its GPUs, what tells of it, idle steps."""
