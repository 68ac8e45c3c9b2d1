"""Other people's reports, each played in separate cells as its reporter had them; the driver judges."""
