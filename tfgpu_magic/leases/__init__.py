"""Which call may use which GPU now: the table of leases on the board, and the choice among GPUs."""
