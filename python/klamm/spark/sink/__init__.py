"""Queries that write topics, optionally exactly once."""
