"""Tests of what a cell did to memory, and what holds it."""
