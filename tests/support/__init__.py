"""Shared by tests: node processes, clients, ports."""
