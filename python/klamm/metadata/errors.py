"""The one error of this package."""

from __future__ import annotations


class HistoryError(Exception):
    """The history cannot be read: no log, records already cleaned, a damaged file. The text names the way out."""
