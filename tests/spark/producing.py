"""Records for the tests, written by librdkafka, and the expected DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import Producer


class Sent(NamedTuple):
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = 1_700_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


def send(bootstrap: str, topic: str, records: Iterable[Sent], **config: object) -> None:
    """Returns once all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0} | config)
    failed: list[object] = []
    for one in records:
        producer.produce(
            topic,
            one.value,
            one.key,
            one.partition,
            timestamp=one.timestamp_ms,
            headers=list(one.headers),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert not failed


def numbered(count: int, partition: int = 0, start: int = 0) -> list[Sent]:
    """Records with their number as the value."""
    return [Sent(b"%d" % number, partition=partition) for number in range(start, start + count)]
