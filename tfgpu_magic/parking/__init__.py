"""Parking: moves a process's GPU state into host memory and back, by a worker of the process's own."""
