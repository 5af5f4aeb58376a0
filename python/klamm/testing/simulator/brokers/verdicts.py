"""What consumers of committed records may see of transactions, judged by what producers know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.records import RecordBatch
    from klamm.testing.simulator.brokers.history import Key

ABORT: Final = b"\0\0\0\0"


class Transaction:
    """One transaction of a producer. Its records name it."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.may_commit = False
        """Its producer asked for a commit, and was not fenced before."""
        self.result: bool | None = None
        """Whether it is committed, as the coordinator has answered."""
        self.acked: dict[str, tuple[Key, int]] = {}
        """The batches that leaders have acknowledged, with their partitions and end offsets."""
        self._seen: bool | None = None

    def on_result(self, *, is_committed: bool) -> None:
        """The coordinator has answered. Raises InvariantViolatedError."""
        if self._seen is not None and self._seen is not is_committed:
            raise InvariantViolatedError(f"{self.name} ends otherwise than consumers have seen it: {is_committed=}")
        self.result = is_committed

    def on_received(self, where: str, text: str) -> None:
        """A consumer receives a batch of it. Raises InvariantViolatedError."""
        if not self.may_commit:
            raise InvariantViolatedError(f"{where}: a consumer receives {text}, which is not to be committed")
        self._see(where, text, is_committed=True)

    def on_skipped(self, where: str, text: str) -> None:
        """A consumer skips a batch of it. Raises InvariantViolatedError."""
        self._see(where, text, is_committed=False)

    def _see(self, where: str, text: str, *, is_committed: bool) -> None:
        known = self.result if self._seen is None else self._seen
        if known is not None and known is not is_committed:
            raise InvariantViolatedError(
                f"{where}: a consumer {'receives' if is_committed else 'skips'} {text}, "
                f"and the transaction is {'committed' if known else 'aborted'} elsewhere"
            )
        self._seen = is_committed

    @property
    def is_committed(self) -> bool:
        """Whether it is known to be committed."""
        return bool(self.result or self._seen)


class Verdicts:
    """All transactions, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Transaction] = {}

    def begin(self, name: str, number: int) -> Transaction:
        """A producer begins a transaction."""
        made = self._known[name] = Transaction(name, number)
        return made

    def of(self, text: str) -> Transaction:
        """The transaction of a batch."""
        return self._known[text.rpartition(".")[0]]

    def check_complete(self, key: Key, where: str, log_start_offset: int, received: list[str]) -> None:
        """A consumer has received these batches of a partition from its log start on. Raises InvariantViolatedError."""
        found = set(received)
        if len(found) < len(received):
            twice = sorted(text for text in found if received.count(text) > 1)
            raise InvariantViolatedError(f"{where}: a consumer receives {twice[0]} twice")
        for transaction in self._known.values():
            for text, (at, end_offset) in transaction.acked.items():
                is_there = at == key and end_offset > log_start_offset
                if is_there and transaction.is_committed and text not in found:
                    raise InvariantViolatedError(f"{where}: no consumer receives {text}, which is committed")


def text_of(batch: RecordBatch) -> str:
    """A batch's text: its transaction and its number in it."""
    return (batch.records()[0].value or b"").decode()


def filtered(batches: list[RecordBatch], aborted: list[tuple[int, int]]) -> tuple[list[RecordBatch], list[RecordBatch]]:
    """The records that a consumer receives and skips, with Apache Kafka's algorithm (`CompletedFetch`)."""
    waiting = sorted(aborted, key=lambda each: -each[1])
    received: list[RecordBatch] = []
    skipped: list[RecordBatch] = []
    skips: set[int] = set()
    for batch in batches:
        while waiting and waiting[-1][1] <= batch.last_offset:
            skips.add(waiting.pop()[0])
        if batch.is_control:
            if batch.records()[0].key == ABORT:
                skips.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in skips:
            skipped.append(batch)
        else:
            received.append(batch)
    return received, skipped
