"""Delivers the core's effects to a listener: an exception there fails the call, but not the replica."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.raft.log.metadata_log import MetadataLogError, OffsetAndEpoch
from klamm.raft.ports import Listener, RaftStoppedError, StateFailedError

logger = logging.getLogger("klamm.raft")

FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 10_000
FATAL: Final = (MetadataLogError, RaftStoppedError, StateFailedError)
"""Exceptions with which a listener stops the replica: its log or its state cannot be trusted any more."""


class Delivery:
    """Implements `Listener`: calls another listener in the order of events. Used on the loop's thread only.

    A commit or an installed snapshot that the listener fails to process is delivered again, with a growing pause. Until
    then the listener receives nothing that depends on it. A leadership that it fails to process is resigned.
    """

    def __init__(self, listener: Listener, resign: Callable[[int], None], stop: Callable[[Exception], None]) -> None:
        """`resign` resigns from an epoch; `stop` is called when a repeated delivery raises a FATAL exception."""
        self._listener, self._resign, self._stop = listener, resign, stop
        self._installed: OffsetAndEpoch | None = None
        self._high_watermark = self._delivered = -1
        self._retry = DeadlineTimer(LoopClock(), lambda at_ms: self._deliver_again())
        self._failures = 0
        self._last_error = ""

    @property
    def is_behind(self) -> bool:
        """Whether deliveries to the listener are pending."""
        return self._installed is not None or self._delivered < self._high_watermark

    def on_commit(self, high_watermark: int) -> None:
        """Everything below is committed. Raises FATAL."""
        self._high_watermark = high_watermark
        if not self._retry.is_armed:
            self._deliver()

    def on_snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log begins and ends with that snapshot. Raises FATAL."""
        self._installed = snapshot_id
        if not self._retry.is_armed:
            self._deliver()

    def on_leader(self, epoch: int) -> None:
        """This replica leads. Raises FATAL."""
        if self.is_behind:
            self._deliver()
        if self.is_behind:
            logger.error("resigning from epoch %d: what was committed before could not be applied", epoch)
            self._resign(epoch)
            return
        try:
            self._listener.on_leader(epoch)
        except FATAL:
            raise
        except Exception:  # whatever the listener raised, a state that cannot lead must not
            logger.exception("resigning from epoch %d: the listener cannot lead", epoch)
            self._resign(epoch)

    def on_not_leader(self, epoch: int) -> None:
        """This replica no longer leads. Raises FATAL."""
        try:
            self._listener.on_not_leader(epoch)
        except FATAL:
            raise
        except Exception:  # the epoch is over, whatever the listener does
            logger.exception("the end of epoch %d could not be processed", epoch)

    def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> Awaitable[None] | None:
        """The awaitable that the listener returns, or one that raises the listener's exception. Raises FATAL."""
        try:
            return self._listener.write_snapshot(snapshot_id)
        except FATAL:
            raise
        except Exception as error:  # whatever the listener raised, the awaiting caller handles it
            return _fail(error)

    def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> Awaitable[None]:
        """As the listener does: whatever it raises refuses the snapshot."""
        return self._listener.load_snapshot(snapshot_id)

    def on_fault(self, error: Exception) -> None:
        """The replica has stopped."""
        self.close()
        try:
            self._listener.on_fault(error)
        except Exception:  # the replica has stopped in any case
            logger.exception("the listener failed when the replica stopped")

    def close(self) -> None:
        """Deliver nothing again."""
        self._retry.cancel()

    def _deliver(self) -> None:
        self.close()
        try:
            if self._installed is not None:
                self._listener.on_snapshot_installed(self._installed)
                self._installed = None
            high_watermark = self._high_watermark
            if self._delivered < high_watermark:
                self._listener.on_commit(high_watermark)
                self._delivered = high_watermark
        except FATAL:
            raise
        except Exception as error:  # the listener is called again, see `Listener`
            self._deliver_later(error)
        else:
            self._failures, self._last_error = 0, ""

    def _deliver_later(self, error: Exception) -> None:
        # Each cause is logged once: the same record fails again for as long as it stands there.
        if repr(error) != self._last_error:
            self._last_error = repr(error)
            text = "what is committed below %d could not be applied, and is tried again: %r"
            logger.error(text, self._high_watermark, error, exc_info=error)
        self._retry.arm_in(min(FIRST_PAUSE_MS * 2 ** min(self._failures, 20), LONGEST_PAUSE_MS))
        self._failures += 1

    def _deliver_again(self) -> None:
        try:
            self._deliver()
        except Exception as error:  # FATAL
            self._stop(error)


async def _fail(error: Exception) -> None:
    raise error
