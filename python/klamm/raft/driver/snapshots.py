"""Runs a replica's snapshots: writes them, checks a fetched one, and cleans the log afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from klamm.driving.clock import DeadlineTimer, LoopClock
from klamm.raft import effects as fx
from klamm.raft.log.metadata_log import MetadataLog, OffsetAndEpoch
from klamm.raft.log.snapshots import SnapshotConfig, is_snapshot_due, next_log_start
from klamm.raft.ports import Listener

logger = logging.getLogger("klamm.raft")

CLEAN_INTERVAL_MS: Final = 60_000


class SnapshotDriver:
    """Writes, checks and cleans, one of each at a time. Must be created and used on the loop's thread."""

    def __init__(
        self,
        log: MetadataLog,
        listener: Listener,
        config: SnapshotConfig,
        wall_clock_ms: Callable[[], int],
        on_checked: Callable[[fx.CheckSnapshot, bool], None],
    ) -> None:
        """`on_checked` receives whether the fetched snapshot is valid and its state was loaded."""
        self._log, self._listener, self._config = log, listener, config
        self._wall_clock_ms, self._on_checked = wall_clock_ms, on_checked
        self._loop = asyncio.get_running_loop()
        self._write_task: asyncio.Task[None] | None = None
        self._check_task: asyncio.Task[None] | None = None
        self._clock = LoopClock()
        self._clean_timer = DeadlineTimer(self._clock, lambda at_ms: self._clean())
        latest = log.latest_snapshot_id
        self._last_offset = latest.offset if latest is not None else 0
        self._last_ms = self._clock.now_ms()
        self._is_stopped = False

    def on_high_watermark(self, high_watermark: int) -> None:
        """Write a snapshot of the committed state if one is due."""
        if self._write_task is not None:
            return
        # An attempt counts from here too: a failed one is retried after as many new bytes, not at every commit.
        since = max(self._last_offset, self._log.start_offset)
        if high_watermark <= since:
            return  # the new records in the log are not committed yet
        ms_since = self._clock.now_ms() - self._last_ms
        if is_snapshot_due(self._config, self._log.bytes_from(since), ms_since):
            snapshot_id = OffsetAndEpoch(high_watermark, self._log.epoch_at(high_watermark - 1))
            writing = self._listener.write_snapshot(snapshot_id)
            if writing is None:
                return
            self._last_offset, self._last_ms = high_watermark, self._clock.now_ms()
            self._write_task = self._loop.create_task(self._finish_writing(snapshot_id, writing))
            if asyncio.iscoroutine(writing):
                # When the end comes first, the task never gets to it, and Python would warn of that.
                self._write_task.add_done_callback(lambda _: writing.close())

    async def _finish_writing(self, snapshot_id: OffsetAndEpoch, writing: Awaitable[None]) -> None:
        name = _name_of(snapshot_id)
        try:
            logger.info("writing snapshot %s", name)
            await writing
            self._clean()
        except Exception:  # without a snapshot the log only grows, and the next is due soon
            logger.exception("snapshot %s failed; the log keeps all that it has", name)
        finally:
            self._write_task = None

    def check(self, effect: fx.CheckSnapshot, leader_id: int | None) -> None:
        """Check the snapshot fetched from that leader and load its state; `on_checked` is notified once, after both."""
        logger.info("snapshot %s was fetched from leader %s", _name_of(effect.snapshot_id), leader_id)
        self._check_task = self._loop.create_task(self._finish_check(effect, leader_id))

    async def _finish_check(self, effect: fx.CheckSnapshot, leader_id: int | None) -> None:
        is_valid = False
        try:
            error = await self._what_is_wrong()
            if error is None:
                await self._listener.load_snapshot(effect.snapshot_id)
                is_valid = True
            else:
                logger.error("a snapshot from leader %s is refused, and asked for again: %s", leader_id, error)
        except Exception:  # the problem with it; the state is unchanged
            logger.exception("snapshot %s cannot be loaded", _name_of(effect.snapshot_id))
        self._on_checked(effect, is_valid)

    async def _what_is_wrong(self) -> str | None:
        """The problem that a thread of the log finds in the received snapshot; None if there is none."""
        checked: asyncio.Future[str | None] = self._loop.create_future()

        def tell(error: str | None) -> None:
            if not checked.done():
                checked.set_result(error)

        def report_from_any_thread(error: str | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: no task waits for it
                self._loop.call_soon_threadsafe(tell, error)

        self._log.check_received_snapshot(report_from_any_thread)
        return await checked

    def drop(self) -> None:
        """Drop the received snapshot, checked or not."""
        if self._check_task is not None:
            self._check_task.cancel()
        self._log.drop_received_snapshot()

    def install(self, snapshot_id: OffsetAndEpoch) -> None:
        """Replace the log by the received and checked snapshot."""
        self._log.install_received_snapshot(snapshot_id)
        self._last_offset, self._last_ms = snapshot_id.offset, self._clock.now_ms()
        logger.info("the metadata log begins with snapshot %s", _name_of(snapshot_id))
        self._listener.on_snapshot_installed(snapshot_id)

    def schedule_clean(self) -> None:
        """Check again after an interval, as long as there are snapshots to delete."""
        self._clean_timer.cancel()
        if not self._is_stopped and len(self._log.snapshots()) > 1:
            self._clean_timer.arm_in(CLEAN_INTERVAL_MS)

    def _clean(self) -> None:
        try:
            self._delete_what_is_over()
        except Exception:  # what stays is too much and does no harm
            logger.exception("the metadata log could not be cleaned; it is tried again in %d ms", CLEAN_INTERVAL_MS)
        self.schedule_clean()

    def _delete_what_is_over(self) -> None:
        while not self._is_stopped:
            snapshots = self._log.snapshots()
            start = next_log_start(self._config, self._wall_clock_ms(), snapshots, self._log.size_bytes)
            if start is None or not self._log.delete_before(start):
                break
            logger.info("the metadata log begins at %d now", self._log.start_offset)

    def stop(self) -> None:
        """Stop without completing anything."""
        self._is_stopped = True
        self._clean_timer.cancel()
        for task in (self._write_task, self._check_task):
            if task is not None:
                task.cancel()


def _name_of(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:020}-{snapshot_id.epoch:010}"
