"""Words become requests, requests are resolved on what the GPUs are, and that becomes a plan. Nothing is done here."""
