"""Queries that read topics: batch and stream, their tasks, rows and columns."""
