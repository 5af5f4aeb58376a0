"""A client of brokers of klamm or Apache Kafka: one connection, connections for an event loop, and a whole cluster."""

from collections.abc import Mapping, Sequence
from typing import Self, final

class ClientError(Exception):
    """A call to a cluster that failed; the text says what, where, why and how to go on."""

    topic: str | None
    partition: int | None
    error_code: int | None
    """The error code (Kafka's `Errors`) if a broker sent one."""

class UnreachableError(ClientError):
    """No answer: the broker has not started, has stopped, or did not answer in time. Another try may help."""

class ConnectError(UnreachableError):
    """There is no connection, and nothing was sent."""

class ConnectRefusedError(ConnectError):
    """The host is there, and nothing listens at that port: the process is not running."""

class ConnectionLostError(UnreachableError):
    """The connection was lost; what was sent may have been carried out or not."""

class ClientTimeoutError(UnreachableError):
    """Nothing helped within the time-out: brokers that do not answer, partitions without a leader."""

class UnsupportedVersionError(ClientError):
    """No version of an API is known to both sides; nothing was sent."""

class BrokerError(ClientError):
    """A broker answered with an error code, which is `error_code`."""

    error_code: int

class SecurityError(ClientError):
    """Client and broker do not trust each other: TLS or SASL failed, and would again with the same keys."""

class OffsetOutOfRangeError(ClientError):
    """An offset that the partition does not hold; it holds [earliest, latest)."""

    offset: int
    earliest: int
    latest: int

class TopicRecreatedError(ClientError):
    """The topic that was to be read was deleted, and another one has its name."""

class NotDeliveredError(ClientError):
    """Records that are not known to be in the log: `topic` and `partition` of the first, and how many."""

    records: int

class ProducerFencedError(ClientError):
    """A newer producer has the same `transactional.id`: only that one may go on."""

class NoTransactionsError(ClientError):
    """The brokers have no transactions, and no other try will help."""

class DamagedBatchError(ClientError):
    """A fetched batch that cannot be read: its checksum, its compression, its records, or it is too large unpacked."""

    offset: int

@final
class FetchedSlice:
    """Records of a partition as Arrow columns: `pyarrow.record_batch(slice)` takes them over without a copy.

    There are the columns that were asked for, in that order: `key`, `value` (binary or null), `topic` (utf8),
    `partition` (int32), `offset` (int64), `timestamp` (us since 1970, UTC), `timestampType` (int32: 0 CreateTime,
    1 LogAppendTime), `headers` (list of structs of `key`, utf8, and `value`, binary or null; null where there is none).
    """

    @property
    def next_offset(self) -> int:
        """Where to read on: every record before it was given out, or is no data. It moves without records, too."""
    @property
    def high_watermark(self) -> int:
        """Of the partition, when the leader answered; so are the next two."""
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int:
        """-1 from a broker that does not tell."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Schema and array as capsules, of a struct of the columns. May be called again."""

    def __len__(self) -> int:
        """Records."""

@final
class BrokerConnection:
    """A connection to one broker for a caller that waits, by TLS and with SASL as the keys say. Releases the GIL.

    The client authenticates again before the broker ends its session (KIP-368). After an error the connection is of no
    use. Signals are handled while it waits.
    """

    def __new__(cls, host: str, port: int, config: Mapping[str, str], timeout_s: float) -> Self:
        """Connects, and asks what the broker speaks, within that time. Keys as for KafkaClient.

        ConfigError; or SecurityError, UnreachableError or another ClientError where it does not come about.
        """

    @property
    def address(self) -> str:
        """host:port."""

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """What the broker speaks: lowest and highest version by API key."""

    def request(self, api_key: int, api_version: int, body: bytes, timeout_s: float) -> bytes:
        """The body of the answer to a request's body, in that version. One at a time. ClientError."""

    def close(self) -> None:
        """Close the connection."""

@final
class Conditions:
    """What a test does to a node of an embedded cluster: it cuts connections to other nodes, pauses the node,
    slows its disk, or advances its clock.

    One object is shared by all parts of the node, and by its next starts. A port stands for its node.
    """

    def __new__(cls) -> Self:
        """All is as without them."""

    def cut(self, port: int, *, sends: bool, receives: bool) -> None:
        """Set what is lost from now on: what the node sends to this port, what it receives from there.

        Bytes wait until nothing is lost any more, and so do new connections and the ends of closed ones.
        """

    def is_cut(self, port: int) -> bool:
        """Whether something is lost between the node and this port."""

    def slow_disk(self, seconds_per_sync: float) -> None:
        """Let each flush of a log take so long at least; 0 ends those that wait. ValueError: negative, too long."""

    def advance(self, *, wall_ms: int, running_ms: int) -> None:
        """Advance the time of day, and the running time, and let wait no longer what is due then."""

    def pause(self) -> None:
        """Hold the network tasks of the node: they accept, receive, send and time nothing."""

    def resume(self) -> None:
        """Let them go on."""

@final
class ChannelQueue:
    """Connections for an event loop, and what happens to them, to be taken by the loop when `fd` is readable.

    The engine decides nothing here: when to connect and how long to wait is the owner's to say.
    """

    def __new__(cls, conditions: Conditions | None = None) -> Self:
        """OSError where there is no descriptor or thread for it. `conditions`: those of the node that connects."""

    @property
    def fd(self) -> int:
        """Readable while there are events."""

    def open(self, host: str, port: int, config: Mapping[str, str]) -> Channel:
        """Begin to connect; `config`: keys of KafkaClient that are about connections. ConfigError."""

    def take(self) -> list[tuple[int, ChannelEvent]]:
        """What has happened since the last call: the id of the channel and the event, in order."""

    def close(self) -> None:
        """Open no channel any more."""

@final
class Channel:
    """A connection with any number of requests under way, from `ChannelQueue.open`."""

    @property
    def id(self) -> int:
        """Unique in its queue."""

    def send(self, api_key: int, api_version: int, body: bytes) -> int:
        """Send a request; the correlation id of its answer. Nothing is sent unless the channel is open."""

    def close(self) -> None:
        """Close it at once; what was not answered never will be. Events that are in the queue may still be taken."""

@final
class ChannelAccepted:
    """The other side took the connection."""

    address: tuple[str, int]
    """Its address and port as numbers."""

@final
class ChannelOpened:
    """Requests may be sent."""

    versions: dict[int, tuple[int, int]]
    """What the other side speaks: lowest and highest version by API key."""

@final
class ChannelAnswered:
    """An answer has come."""

    correlation_id: int
    body: bytes

@final
class ChannelClosed:
    """The channel could not be opened, or is lost. What was not answered never will be."""

    error: ClientError

ChannelEvent = ChannelAccepted | ChannelOpened | ChannelAnswered | ChannelClosed

@final
class KafkaClient:
    """A client of one cluster of klamm or Apache Kafka (Fetch v4 and newer). Thread-safe; calls release the GIL.

    Leader changes, restarts and brokers that cannot be reached are waited out within `default.api.timeout.ms`; for
    producing, as by the Java producer, within `max.block.ms` until it can begin, and within `delivery.timeout.ms` from
    then on. It can be pickled, and connects again where it is unpickled; after a fork the child needs one of its
    own. Every call raises ClientError, and ValueError for arguments that make no sense.
    """

    def __new__(cls, bootstrap_servers: str, config: Mapping[str, str] | None = None) -> Self:
        """Keys are those of Apache Kafka's clients. ConfigError: one that is unknown, or has no such value.

        Nothing is connected to before the first call.
        """

    def topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, ascending."""

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, ascending, requested again. A new topic is waited for 1.5 s."""

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic, as text, as `partitions` or a fetch last learned it; None where brokers have no ids."""

    def offsets(self, topic: str, partitions: Mapping[int, int]) -> dict[int, int]:
        """The offset for each partition's timestamp in ms: of the first record at or after it, -1 when there is none.

        -1 instead of a timestamp: the end (the last stable offset under read_committed); -2: the first that is there.
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
        """The next records of the offsets [start, end), as many as came together; read on from `next_offset`.

        Control records and, under `isolation.level=read_committed`, aborted transactions are passed over, so that a
        slice may be empty and still lead further. `next_offset` is `start` only when nothing came within
        `fetch.max.wait.ms`. At most `max_records`, and about `max_bytes` of all columns (64 MiB unless given). What a
        fetch brought beyond is kept for the next call.

        With a `topic_id`, only that topic is read: TopicRecreatedError where another one has its name.
        OffsetOutOfRangeError; DamagedBatchError, where records before the damage come first.
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
        """Take records to be sent soon: Arrow arrays (anything with `__arrow_c_array__`) of one length, None for nulls.

        `keys`, `values`: binary or string; `headers`: list of structs of a key and a value; `timestamps`: timestamp, or
        int64 in ms, now where null. `partition`: one for all, or int32s; where null, the Java client's choice: by
        murmur2 of the key, without one batch by batch (or `partitioner.class` names its RoundRobinPartitioner).

        Always idempotent, acknowledged by all replicas in sync. Waits while `buffer.memory` is full. NotDeliveredError
        reports records of earlier calls, once: after it the producer starts again. ClientError for a record that is
        larger than `max.request.size`: the rows before it are taken. With a `transactional.id` only in a transaction.
        """

    def flush(self) -> None:
        """Send what was taken, and wait until all of it is acknowledged. NotDeliveredError."""

    def init_transactions(self) -> None:
        """Fence earlier producers of the same `transactional.id`, and end what they left open (KIP-98)."""

    def begin_transaction(self) -> None: ...
    def add_offsets(self, group: str, offsets: Mapping[str, Mapping[int, int]], metadata: str = "") -> None:
        """Commit a group's offsets, by topic and partition, with the transaction; `metadata` is kept with each.

        Topics and partitions must be there.
        """

    def committed(
        self, group: str, topic: str | None = None, *, stable: bool = True
    ) -> list[tuple[str, int, int | None, str]]:
        """What a group has committed for partition 0 of a topic, or all of it: topic, partition, offset, metadata.

        `stable`: None for an offset that a transaction which has not ended will replace (KIP-447); where nothing was
        committed before, that is returned only for a request that names the topic.
        """

    def check_transactions(self, transactional_id: str) -> None:
        """Find the coordinator of a transactional id. NoTransactionsError where brokers have no transactions."""

    def identity(self) -> tuple[int, int] | None:
        """Producer id and epoch, once there are; with them another process may end this one's transaction."""

    def end_transaction_of(self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool) -> None:
        """End a transaction that another client began, flushed and left open.

        ProducerFencedError: the id has a newer producer, or the transaction took longer than its time-out.
        """

    def commit_transaction(self) -> None:
        """Flush, then let everything of the transaction be read. After an error only abort_transaction() helps.

        ProducerFencedError: another producer has the same `transactional.id`, and this one is done.
        """

    def abort_transaction(self) -> None:
        """Drop what is not sent, and let nothing of the transaction be read under read_committed."""

    def close(self) -> None:
        """Close the connections; later calls raise ClientError. What is not flushed may be lost."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> tuple[type[Self], tuple[str, dict[str, str]]]: ...
