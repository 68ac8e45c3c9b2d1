"""Draws rows: as text, as HTML, as messages to live views, and as objects that IPython shows."""
