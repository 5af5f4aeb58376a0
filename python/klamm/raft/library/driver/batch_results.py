"""The results of many commands as one future: a future and a turn of the loop for each would cost more than that."""

from __future__ import annotations

import asyncio


class BatchResults:
    """As many results as there are commands, in their order."""

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self._results = [b""] * count
        self._missing = count
        self._error: Exception | None = None
        if count == 0:
            self.future.set_result([])

    def settle(self, index: int, result: bytes, error: Exception | None) -> None:
        """The outcome of one; the first error is that of all, once all have theirs."""
        self._results[index] = result
        self._error = self._error or error
        self._missing -= 1
        if self._missing > 0 or self.future.done():
            return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._results)


class Slot:
    """The result of one command of many, with the methods of a future that are needed."""

    __slots__ = ("_gathered", "_index")

    def __init__(self, gathered: BatchResults, index: int) -> None:
        self._gathered, self._index = gathered, index

    def done(self) -> bool:
        """Whether no caller waits for it any more."""
        return self._gathered.future.done()

    def cancelled(self) -> bool:
        """Whether the waiting caller was cancelled."""
        return self._gathered.future.cancelled()

    def set_result(self, result: bytes, /) -> None:
        """Set the result."""
        self._gathered.settle(self._index, result, None)

    def set_exception(self, error: Exception, /) -> None:
        """Set the error."""
        self._gathered.settle(self._index, b"", error)
