"""The checks: each declares its outcomes, and decides which of them hold by what is read of the machine."""
