"""Adapts parts of a node to the interfaces that handlers and coordinators need."""
