"""A client of brokers of klamm or Apache Kafka: one connection, connections for an event loop, and a whole cluster."""

from collections.abc import Mapping, Sequence
from typing import Self, final

class ClientError(Exception):
    """A call to a cluster failed; the message says what failed, where, why, and what to do."""

    topic: str | None
    partition: int | None
    error_code: int | None
    """The error code (Kafka's `Errors`) if a broker sent one."""

class UnreachableError(ClientError):
    """No response: the broker has not started, has stopped, or did not respond in time. A retry may succeed."""

class ConnectError(UnreachableError):
    """No connection could be established, and nothing was sent."""

class ConnectRefusedError(ConnectError):
    """The host is up, but nothing listens on that port: the process is not running."""

class ConnectionLostError(UnreachableError):
    """The connection was lost; a request that was sent may or may not have taken effect."""

class ClientTimeoutError(UnreachableError):
    """No attempt succeeded within the timeout: brokers do not respond, or partitions have no leader."""

class UnsupportedVersionError(ClientError):
    """The two sides have no version of an API in common; nothing was sent."""

class BrokerError(ClientError):
    """A broker responded with an error, `error_code`."""

    error_code: int

class SecurityError(ClientError):
    """TLS or SASL failed, and would fail again with the same configuration."""

class OffsetOutOfRangeError(ClientError):
    """The offset is outside the range of the partition, [earliest, latest)."""

    offset: int
    earliest: int
    latest: int

class TopicRecreatedError(ClientError):
    """The topic was deleted and created again: its name belongs to another topic id."""

class NotDeliveredError(ClientError):
    """Records may not be in the log: how many, and `topic` and `partition` of the first one."""

    records: int

class ProducerFencedError(ClientError):
    """A newer producer with the same `transactional.id` has fenced this one."""

class NoTransactionsError(ClientError):
    """The brokers do not support transactions; a retry would not help."""

class DamagedBatchError(ClientError):
    """A fetched batch cannot be read: wrong checksum, compression or records, or it is too large when decompressed."""

    offset: int

@final
class FetchedSlice:
    """Records of a partition as Arrow columns: `pyarrow.record_batch(slice)` takes them over without a copy.

    The columns are those that were requested, in that order: `key`, `value` (binary or null), `topic` (utf8),
    `partition` (int32), `offset` (int64), `timestamp` (us since 1970, UTC), `timestampType` (int32: 0 CreateTime,
    1 LogAppendTime), `headers` (list of structs of `key`, utf8, and `value`, binary or null; null where there is none).
    """

    @property
    def next_offset(self) -> int:
        """The offset to continue at. It advances past control and aborted records, also if the slice is empty."""
    @property
    def high_watermark(self) -> int:
        """The partition's high watermark in the leader's response; the next two are from the same response."""
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int:
        """-1 if the broker does not report it."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The schema and array capsules of a struct of the columns. May be called several times."""

    def __len__(self) -> int:
        """The number of records."""

@final
class BrokerConnection:
    """A blocking connection to one broker, with TLS and SASL as configured. Releases the GIL.

    The client re-authenticates before the broker ends its session (KIP-368). After an error the connection cannot be
    used any more. Signals are handled while it waits.
    """

    def __new__(cls, host: str, port: int, config: Mapping[str, str], timeout_s: float) -> Self:
        """Connect and request the broker's API versions within `timeout_s`. Keys are those of KafkaClient.

        Raises ConfigError; SecurityError, UnreachableError or another ClientError if the connection fails.
        """

    @property
    def address(self) -> str:
        """host:port."""

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The API versions that the broker supports: lowest and highest version by API key."""

    def request(self, api_key: int, api_version: int, body: bytes, timeout_s: float) -> bytes:
        """Send a request in that version and return the body of its response; one at a time. Raises ClientError."""

    def close(self) -> None:
        """Close the connection."""

@final
class Conditions:
    """Faults that a test injects into a node of an embedded cluster: it cuts connections to other nodes, pauses the
    node, slows its disk, or advances its clock.

    All parts of the node share one object, across restarts. A node is identified by its port.
    """

    def __new__(cls) -> Self:
        """Without any fault."""

    def cut(self, port: int, *, sends: bool, receives: bool) -> None:
        """Cut, from now on, what the node sends to this port, what it receives from it, both or nothing.

        Bytes, new connections and the ends of closed connections are held back until nothing is cut any more.
        """

    def is_cut(self, port: int) -> bool:
        """Whether either direction between the node and this port is cut."""

    def slow_disk(self, seconds_per_sync: float) -> None:
        """Make each flush of a log take at least that long; 0 ends the delays. ValueError: negative, too long."""

    def advance(self, *, wall_ms: int, running_ms: int) -> None:
        """Advance the time of day and the running time; everything that is due by then happens."""

    def pause(self) -> None:
        """Suspend the network tasks of the node: they accept, receive and send nothing, and none of them times out."""

    def resume(self) -> None:
        """Resume the network tasks."""

@final
class ChannelQueue:
    """Connections for an event loop, and a queue of their events, which the loop takes when `fd` is readable.

    The engine decides nothing here: the owner decides when to connect and how long to wait.
    """

    def __new__(cls, conditions: Conditions | None = None) -> Self:
        """Raises OSError if no file descriptor or thread is available. `conditions`: those of the connecting node."""

    @property
    def fd(self) -> int:
        """Readable while there are events."""

    def open(self, host: str, port: int, config: Mapping[str, str]) -> Channel:
        """Start to connect; `config`: the keys of KafkaClient that concern connections. Raises ConfigError."""

    def take(self) -> list[tuple[int, ChannelEvent]]:
        """The events since the last call, in order, each with the id of its channel."""

    def close(self) -> None:
        """Open no more channels."""

@final
class Channel:
    """A connection with any number of requests in flight, from `ChannelQueue.open`."""

    @property
    def id(self) -> int:
        """Unique in its queue."""

    def send(self, api_key: int, api_version: int, body: bytes) -> int:
        """Send a request and return its correlation id. Nothing is sent unless the channel is open."""

    def close(self) -> None:
        """Close it at once; requests in flight get no response. Events in the queue may still be taken."""

@final
class ChannelAccepted:
    """The other side accepted the connection."""

    address: tuple[str, int]
    """Its numeric address and port."""

@final
class ChannelOpened:
    """Requests may be sent."""

    versions: dict[int, tuple[int, int]]
    """The API versions that the other side supports: lowest and highest version by API key."""

@final
class ChannelAnswered:
    """A response arrived."""

    correlation_id: int
    body: bytes

@final
class ChannelClosed:
    """The channel could not be opened, or was lost. Requests in flight get no response."""

    error: ClientError

ChannelEvent = ChannelAccepted | ChannelOpened | ChannelAnswered | ChannelClosed

@final
class KafkaClient:
    """A client of one cluster of klamm or Apache Kafka (Fetch v4 and newer). Thread-safe; calls release the GIL.

    Calls are retried through leader changes, restarts and unreachable brokers for up to `default.api.timeout.ms`. As in
    the Java producer, producing waits up to `max.block.ms` until it can begin, and up to `delivery.timeout.ms` from
    then on. A client can be pickled, and connects again where it is unpickled; after a fork the child needs its own
    client. Every call raises ClientError, and ValueError for invalid arguments.
    """

    def __new__(cls, bootstrap_servers: str, config: Mapping[str, str] | None = None) -> Self:
        """Keys are those of Apache Kafka's clients. ConfigError: an unknown key, or an invalid value.

        It does not connect before the first call.
        """

    def topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, ascending."""

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, ascending, from a new request. It waits up to 1.5 s for a new topic."""

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic as text, from the last call of `partitions` or fetch; None if brokers have no topic ids."""

    def offsets(self, topic: str, partitions: Mapping[int, int]) -> dict[int, int]:
        """For each partition, the offset of the first record at or after a timestamp in ms; -1 if there is none.

        Instead of a timestamp, -1 is the end (the last stable offset under read_committed), -2 the earliest offset.
        """

    def fetch(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        columns: Sequence[str],
        max_records: int | None = None,
        max_bytes: int | None = None,
        topic_id: str | None = None,
    ) -> FetchedSlice:
        """The next records of the offsets [start, end), as many as arrived together; continue at `next_offset`.

        Control records and, under `isolation.level=read_committed`, aborted transactions are skipped, so a slice may be
        empty although `next_offset` has advanced. `next_offset` is `start` only if nothing arrived within
        `fetch.max.wait.ms`. Returns at most `max_records`, and about `max_bytes` of all columns (default 64 MiB). The
        rest of a fetch response is kept for the next call.

        With a `topic_id`, only that topic is read: TopicRecreatedError if another topic has its name. Raises
        OffsetOutOfRangeError, and DamagedBatchError after the records before the damage were returned.
        """

    def produce(
        self,
        topic: str,
        partition: int | object | None,
        keys: object | None,
        values: object | None,
        headers: object | None = None,
        timestamps: object | None = None,
    ) -> None:
        """Queue records to be sent: Arrow arrays (anything with `__arrow_c_array__`) of one length, None for all nulls.

        `keys`, `values`: binary or string; `headers`: list of structs of a key and a value; `timestamps`: timestamp, or
        int64 in ms, null for now. `partition`: one for all, or int32s. Null lets the client choose as the Java client
        does: by murmur2 of the key; without a key, per batch (or by `partitioner.class`'s RoundRobinPartitioner).

        The producer is idempotent, with acks=all. The call waits while `buffer.memory` is full. NotDeliveredError
        reports records of earlier calls, once; after it the producer starts again. ClientError if a record is larger
        than `max.request.size`: the rows before it are queued. With a `transactional.id`, only within a transaction.
        """

    def flush(self) -> None:
        """Send the queued records, and wait until all are acknowledged. Raises NotDeliveredError."""

    def init_transactions(self) -> None:
        """Fence earlier producers of the same `transactional.id`, and end their open transaction (KIP-98)."""

    def begin_transaction(self) -> None: ...
    def add_offsets(self, group: str, offsets: Mapping[str, Mapping[int, int]], metadata: str = "") -> None:
        """Commit a group's offsets, by topic and partition, in the transaction; `metadata` is stored with each.

        Topics and partitions must exist.
        """

    def committed(
        self, group: str, topic: str | None = None, *, stable: bool = True
    ) -> list[tuple[str, int, int | None, str]]:
        """A group's committed offset for partition 0 of a topic, or all: topic, partition, offset, metadata.

        `stable`: the offset is None while an open transaction is about to replace it (KIP-447). If nothing was
        committed before, such a partition is returned only if the call names the topic.
        """

    def check_transactions(self, transactional_id: str) -> None:
        """Find the coordinator of a transactional id. NoTransactionsError if brokers do not support transactions."""

    def identity(self) -> tuple[int, int] | None:
        """Producer id and epoch, if assigned yet; another process can end the transaction with them."""

    def end_transaction_of(self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool) -> None:
        """End a transaction that another client began, flushed and left open.

        ProducerFencedError: the id has a newer producer, or the transaction has exceeded its timeout.
        """

    def commit_transaction(self) -> None:
        """Flush, then commit the transaction. After an error, the only valid call is abort_transaction().

        ProducerFencedError: a newer producer with the same `transactional.id` has replaced this one for good.
        """

    def abort_transaction(self) -> None:
        """Drop the records that are not sent, and abort the transaction."""

    def close(self) -> None:
        """Close the connections; later calls raise ClientError. Records that are not flushed may be lost."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> tuple[type[Self], tuple[str, dict[str, str]]]: ...
