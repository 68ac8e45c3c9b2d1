"""Parking, which is being rebuilt: its words, and the gate that holds user code back while GPU state is away."""
