"""Tests of the command `tfgpu`: on a simulated machine, in a shell's way."""
