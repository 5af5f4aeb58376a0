"""Records as JSON fields, plain words and Arrow tables."""
