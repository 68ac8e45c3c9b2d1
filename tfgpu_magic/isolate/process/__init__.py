"""The process of a call: how it is started, spoken with, and ended."""
