"""Parking: moves a process's GPU state into host memory and back, through one helper process for each user."""
