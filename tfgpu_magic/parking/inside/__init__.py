"""What a process that is parked does itself: it says whether it may be, blocks user code, and comes back for it."""
