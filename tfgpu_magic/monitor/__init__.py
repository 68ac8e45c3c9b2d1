"""Drivers to what people see: snapshot, owners, rows."""
