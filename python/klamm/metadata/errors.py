"""The one error of this package."""

from __future__ import annotations


class HistoryError(Exception):
    """What cannot be told, and why: no log there, records cleaned away, a damaged file. The text names the way out."""
