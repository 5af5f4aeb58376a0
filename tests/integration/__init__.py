"""Real clients with a real node."""
