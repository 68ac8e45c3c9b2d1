"""Parking: a notebook's GPU state goes to host memory and back, by its frameworks, and none of its code runs meanwhile."""
