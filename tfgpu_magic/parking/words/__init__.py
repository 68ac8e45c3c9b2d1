"""What the words of parking do, a module each; `parking.parts` has them as data."""
