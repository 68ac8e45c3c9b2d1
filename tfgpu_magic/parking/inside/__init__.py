"""What a process that is parked does itself: it says whether it may be, holds user code back, and comes back for it."""
