"""Tests that really kill processes."""
