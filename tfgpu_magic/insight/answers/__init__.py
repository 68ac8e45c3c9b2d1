"""What insight answers, as text and HTML."""
