"""Queries that write topics, exactly once where asked for."""
