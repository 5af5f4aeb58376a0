"""A shard that a test hosts: with a log in memory that commits immediately, or when the test says so, and a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.coordinator.runtime.effects import Reply
from klamm.coordinator.runtime.hosted_shard import HostedShard
from klamm.coordinator.runtime.pipeline import Write
from klamm.protocol.errors import ErrorCode


class HostingRoom:
    """The shard's log, time and responses by ticket. A subclass has them before it calls `host`."""

    log: list[Any]
    now_ms: int

    def host(self, shard: Any) -> None:
        """Host a shard that has replayed the log."""
        self.answers: dict[Any, Any] = {}
        self.in_flight: list[tuple[Write[Any], list[Any]]] = []
        """The appends that are pending, each with what the log will hold of it."""
        self.in_flight_max = 1
        self.holds_appends = False
        self._tickets = 0
        self.hosted = HostedShard(0, 0, shard)
        self.take(shard.on_loaded(self.now_ms))

    def on_effect(self, effect: Any) -> None:
        """An effect that is no response: a shard with such effects has a subclass that handles them."""
        raise AssertionError(f"unexpected effect {effect!r}")

    def records_of(self, write: Write[Any]) -> list[Any]:
        """What the log holds of a write."""
        return list(write.records)

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def ask(self, event: Callable[..., list[Any]], *args: Any) -> Any:
        """The response to a request, or None while there is none."""
        ticket = self.ticket()
        self.take(event(self.now_ms, ticket, *args))
        return self.answers.get(ticket)

    def last_answer(self) -> Any:
        return self.answers.get(self._tickets)

    def take(self, effects: list[Any]) -> None:
        """Carry out the shard's effects."""
        for effect in effects:
            if not isinstance(effect, Reply):
                self.on_effect(effect)
                continue
            assert effect.ticket not in self.answers, f"{effect.ticket} was answered twice"
            self.answers[effect.ticket] = effect.response
        while len(self.in_flight) < self.in_flight_max and (write := self.hosted.take_append()) is not None:
            self.in_flight.append((write, self.records_of(write)))
        if self.in_flight and not self.holds_appends:
            self.commit()

    @property
    def appending(self) -> list[Any] | None:
        """The records of the oldest pending append, or None."""
        return self.in_flight[0][1] if self.in_flight else None

    def commit(self) -> None:
        """The oldest pending append is committed."""
        write, records = self.in_flight.pop(0)
        self.log += records
        self.take(self.hosted.on_append_done(self.now_ms, write))

    def commit_all(self) -> None:
        while self.in_flight:
            self.commit()

    def fail(self, error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS, at: int = 0) -> None:
        """A pending append fails; the later ones are not attempted."""
        failed, self.in_flight = self.in_flight[at:], self.in_flight[:at]
        for write, _ in failed:
            self.take(self.hosted.on_append_done(self.now_ms, write, error))
            error = ErrorCode.OPERATION_NOT_ATTEMPTED

    def take_in_flight(self, count: int) -> list[Any]:
        """No pending append will be answered; returns what the log holds if it has the first `count` of them."""
        pending, self.in_flight = self.in_flight, []
        return [record for _, records in pending[:count] for record in records]

    def pass_time(self, for_ms: int) -> None:
        """Let time pass, firing timers when they are due."""
        end_ms = self.now_ms + for_ms
        while (deadline_ms := self.hosted.deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.hosted.on_timer(self.now_ms))
        self.now_ms = end_ms
