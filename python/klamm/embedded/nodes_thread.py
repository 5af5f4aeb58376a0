"""The thread in which the nodes of an embedded cluster run.

KeyboardInterrupt is raised in the main thread, between any two steps of Python code. So the caller that opens or closes
a cluster owns nothing: folder, engines and loop are created and closed in this thread, which is never interrupted, and
the caller only requests the end and waits. An interrupted wait does not affect this thread.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Final, TypeVar

from klamm.config.node_config import NodeConfig
from klamm.driving.nodes_loop import NodesLoop
from klamm.embedded.members import Members, format_blanks
from klamm.embedded.outcome import Outcome

T = TypeVar("T")

STOP_TIMEOUT_S: Final = 10.0


class NodesThread:
    """Opens nodes, runs them, and closes them on request, in any state.

    Without `data` their folder is temporary: created here, and removed when they are closed or the process ends.
    """

    def __init__(
        self, data: Path | None, configs: Callable[[Path], Sequence[NodeConfig]], *, is_volatile: bool
    ) -> None:
        self._is_temporary = data is None
        self.data = data
        self._configs, self._is_volatile = configs, is_volatile
        self._process_id = os.getpid()
        self._claim = threading.Lock()  # of the thread, which runs, or of an end that came before it
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._is_end_asked = False
        self._calls: set[Outcome[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lock = threading.Lock()
        self._fault: BaseException | None = None
        self.members: Members | None = None
        self.is_open = False
        self.opened: Outcome[None] = Outcome()
        """Set when the nodes serve, or with the reason why they do not."""
        self.ended: Outcome[None] = Outcome()
        """Set when nothing is left of them."""

    # For the thread that opens and closes

    def begin(self) -> None:
        """Begin to open."""
        # `Thread.start` may not be interrupted, so it is called by a thread that cannot be. One call begins that.
        _thread.start_new_thread(self._begin_named, ())

    def _begin_named(self) -> None:
        threading.Thread(target=self._run, name="klamm-cluster", daemon=True).start()

    def end(self) -> None:
        """Request the end; may be called repeatedly, from any thread. Has no effect in a fork."""
        if os.getpid() != self._process_id:
            return
        self._is_end_asked = True
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None:
            with contextlib.suppress(RuntimeError):  # it has ended, and closed the loop
                loop.call_soon_threadsafe(wake.set)

    def abandon(self) -> None:
        """Request the end if it is not known whether `begin` completed."""
        if self._claim.acquire(blocking=False):
            self.ended.set_value(None)  # it did not, and will not
        self.end()

    def wait_for_end(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is left. An interrupt is held back until then; a second one is not."""
        try:
            self._wait_for_end(timeout_s)
        except BaseException:  # any exception is raised
            self.end()
            self._wait_for_end(timeout_s)
            raise

    def _wait_for_end(self, timeout_s: float | None) -> None:
        if self.ended.wait(timeout_s) and self._thread is not None:
            self._thread.join(timeout_s)

    # For all users of the nodes

    def submit(self, work: Coroutine[Any, Any, T]) -> Outcome[T] | None:
        """Run something in the nodes' loop; None when they are closed. Closing cancels it."""
        outcome: Outcome[T] = Outcome()
        # Under the lock, so that the end sees every call that is under way.
        with self._lock:
            if not self.is_open or self._loop is None:
                work.close()
                return None
            self._loop.call_soon_threadsafe(self._answer, work, outcome)
            self._calls.add(outcome)
        return outcome

    def _answer(self, work: Coroutine[Any, Any, T], outcome: Outcome[T]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._on_answer(done, outcome))

    def _on_answer(self, task: asyncio.Task[T], outcome: Outcome[T]) -> None:
        self._tasks.discard(task)
        self._calls.discard(outcome)
        error = CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            outcome.set_error(error)
        else:
            outcome.set_value(task.result())

    # The thread

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        self._thread = threading.current_thread()
        atexit.register(self._leave)
        try:
            self._live()
        finally:
            self._remove_folder()
            atexit.unregister(self._leave)
            if self._fault is None:
                self.ended.set_value(None)
            else:
                self.ended.set_error(self._fault)

    def _live(self) -> None:
        try:
            if self.data is None:
                self.data = Path(tempfile.mkdtemp(prefix="klamm-"))
            configs = self._configs(self.data)
            format_blanks(configs, is_volatile=self._is_volatile)
            self.members = Members(configs, is_volatile=self._is_volatile)
            loop = NodesLoop(self.members.on_advanced)
        except BaseException as error:  # any exception is raised in the caller that opens
            self.opened.set_error(error)
            return
        try:
            loop.run_until_complete(self._serve(loop, self.members))
        except BaseException as error:  # the same, or in the caller that closes
            if self.opened.is_set:
                self._fault = error
            self.opened.set_error(error)
        finally:
            self._refuse_calls()
            loop.run_until_complete(_end_tasks())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    async def _serve(self, loop: asyncio.AbstractEventLoop, members: Members) -> None:
        """Run the nodes from their start until the end is requested."""
        wake = self._wake = asyncio.Event()
        self._loop = loop
        if self._is_end_asked:  # before there was an event to set
            return
        start = loop.create_task(members.start())
        asked = loop.create_task(wake.wait())
        await asyncio.wait({start, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            start.cancel()
            await asyncio.wait({start})
        if start.cancelled():
            return
        start.result()
        self.is_open = True
        self.opened.set_value(None)
        await asked
        self.is_open = False
        async with asyncio.timeout(2 * STOP_TIMEOUT_S):
            await members.stop(STOP_TIMEOUT_S)

    def _refuse_calls(self) -> None:
        """Refuse calls from now on, and cancel those in progress."""
        with self._lock:
            self.is_open = False
            calls = list(self._calls)
        for call in calls:
            call.set_error(CancelledError())

    def _leave(self) -> None:
        """Called at the end of the process if the nodes were not closed: no threads can be started for a stop."""
        if os.getpid() == self._process_id:
            self._remove_folder()

    def _remove_folder(self) -> None:
        if self._is_temporary and self.data is not None:
            shutil.rmtree(self.data, ignore_errors=True)


async def _end_tasks() -> None:
    """Cancel the remaining tasks of this loop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
