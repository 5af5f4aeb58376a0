"""Handles records that a query should read and that no longer exist."""

from __future__ import annotations

import logging
from collections.abc import Sequence

_log = logging.getLogger(__name__)
_SHOWN_MAX = 5


class DataLossError(RuntimeError):
    """Records, or their topic, were deleted before they were read."""


def report_loss(lost: Sequence[str], fail: bool) -> None:
    """Raise DataLossError with the messages, or log a warning if failOnDataLoss=false."""
    if not lost:
        return
    more = f" and {len(lost) - _SHOWN_MAX} more" if len(lost) > _SHOWN_MAX else ""
    text = "; ".join(lost[:_SHOWN_MAX]) + more
    if fail:
        raise DataLossError(
            f"some data is lost: {text}. Retention deleted it, or its topic was deleted; to continue without it, "
            "set the option failOnDataLoss to false"
        )
    _log.warning("some data is lost; the query continues because failOnDataLoss is false: %s", text)
