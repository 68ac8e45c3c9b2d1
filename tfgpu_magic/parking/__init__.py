"""Parking: moves a notebook's GPU state to host memory and back by its frameworks; none of its code runs meanwhile."""
