"""All that runs as root: the administrator's GPU memory limits, given to the driver; it imports no other room."""
