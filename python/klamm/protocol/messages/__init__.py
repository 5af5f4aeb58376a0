"""Requests and answers as our own values, a file per API family."""
