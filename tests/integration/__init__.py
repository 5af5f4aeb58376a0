"""Real clients against a real node."""
