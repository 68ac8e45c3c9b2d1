"""What checks run in processes of their own, because it may hang, crash, or change the process that it runs in."""
