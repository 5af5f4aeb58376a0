"""Assembles a node from the parts of its roles."""
