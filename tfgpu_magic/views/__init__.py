"""Rows to what people see: text, HTML, and the object that shows itself as both."""
