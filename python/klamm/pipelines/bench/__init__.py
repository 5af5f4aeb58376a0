"""Comparisons of klamm's Spark source and sink with others."""
