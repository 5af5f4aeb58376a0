"""The native seam: everything that Python asks of Rust. Ids are 16 raw bytes; times are ms; offsets are int64."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, final

_T = TypeVar("_T")

__version__: str

# ---- configuration keys ----

ConfigScope = Literal["node", "topic", "group", "client-metrics"]  # in the stub only

class ConfigError(ValueError):
    """A configuration key or value that is refused; the text names key, value and what is allowed."""

@final
class ConfigKey:
    """One configuration key (facts 12)."""

    @property
    def scope(self) -> ConfigScope: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str:
        """BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS or PASSWORD."""
    @property
    def type_id(self) -> int:
        """The type as DescribeConfigs sends it."""
    @property
    def default(self) -> str | None:
        """The default as it is printed; None when the value is null, or required."""
    @property
    def is_required(self) -> bool: ...
    @property
    def allowed(self) -> str:
        """What values are allowed, as Kafka prints it; empty when the type says it all."""
    @property
    def importance(self) -> Literal["high", "medium", "low"]: ...
    @property
    def update_mode(self) -> Literal["read-only", "per-broker", "cluster-wide"]:
        """Whether a node's key can be changed while it runs."""
    @property
    def documentation(self) -> str:
        """What the key does, and whether it has an effect in klamm yet."""
    @property
    def is_honoured(self) -> bool:
        """Whether klamm acts on the key; one that it does not honour is known, checked and shown."""
    @property
    def is_internal(self) -> bool: ...
    @property
    def is_dynamic_only(self) -> bool:
        """Settable through the Admin API, not in server.properties."""
    @property
    def is_sensitive(self) -> bool:
        """A password: never logged, described or sent."""
    @property
    def synonyms(self) -> list[tuple[str, int]]:
        """Node keys that give the default, first wins; each with the factor that turns its unit into this key's."""

def config_keys(scope: ConfigScope) -> list[ConfigKey]:
    """Every key of a scope; for a node klamm's own after Kafka's."""

def find_config_key(scope: ConfigScope, name: str) -> ConfigKey | None:
    """The key of that name."""

def parse_config(scope: ConfigScope, name: str, value: str) -> bool | int | float | str | list[str]:
    """The value as the key's type. ConfigError: unknown key, wrong type, or not allowed."""

def format_config(scope: ConfigScope, name: str, value: str) -> str:
    """The value as Kafka prints it after parsing: trimmed, numbers and lists in their plain form."""

# ---- records ----

Headers = Sequence[tuple[str, bytes | None]]  # in the stub only
Row = tuple[int, bytes | None, bytes | None] | tuple[int, bytes | None, bytes | None, Headers]  # in the stub only

class RecordsDamagedError(ValueError):
    """Bytes that are no record batches, or that decompress to more than was allowed."""

    error_code: int
    """The protocol's code for a produce of such bytes (facts 12)."""

@final
class Record:
    """One record of a batch, its bytes copied out of it."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int:
        """-1 for none."""
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None:
        """None is a tombstone."""
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...

@final
class RecordBatch:
    """A batch: what its header says, and its records on demand. Keeps the bytes it was found in."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def compression(self) -> str:
        """RecordsDamagedError for an id that is not assigned."""
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def base_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def delete_horizon_ms(self) -> int | None: ...
    @property
    def producer_id(self) -> int:
        """-1 for none, as epoch and sequence."""
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def record_count(self) -> int:
        """As the header says: may be 0 after compaction."""
    @property
    def size_bytes(self) -> int: ...
    def check(self) -> None:
        """RecordsDamagedError: wrong checksum, codec, offsets or count."""

    def records(self, *, decompressed_bytes_max: int = ...) -> list[Record]:
        """All records, control records too. RecordsDamagedError."""

    def columns(self, *, decompressed_bytes_max: int = ...) -> RecordColumns:
        """All records. RecordsDamagedError."""

    def __bytes__(self) -> bytes: ...

@final
class Buffer:
    """Read-only memory with the buffer protocol, for memoryview(), numpy or pyarrow. Numbers in native order."""

    def __len__(self) -> int:
        """Its size in bytes."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class BytesColumn:
    """Byte strings or nulls as Arrow's `binary`: value i is data[offsets[i]:offsets[i + 1]]."""

    @property
    def offsets(self) -> Buffer:
        """int32, one more than values."""
    @property
    def data(self) -> Buffer: ...
    @property
    def validity(self) -> Buffer | None:
        """A bit a value, lowest first, 0 for null; None when there is no null."""
    @property
    def null_count(self) -> int: ...
    def __len__(self) -> int: ...

@final
class RecordColumns:
    """Records as columns; row i is the record at offsets[i]."""

    @property
    def count(self) -> int:
        """Rows; also len()."""
    @property
    def offsets(self) -> Buffer:
        """int64."""
    @property
    def timestamps(self) -> Buffer:
        """int64, ms; -1 for none."""
    @property
    def keys(self) -> BytesColumn: ...
    @property
    def values(self) -> BytesColumn: ...
    @property
    def header_offsets(self) -> Buffer:
        """int32, one more than rows: row i has the headers [header_offsets[i], header_offsets[i + 1])."""
    @property
    def header_keys(self) -> BytesColumn: ...
    @property
    def header_values(self) -> BytesColumn: ...
    def __len__(self) -> int: ...

def decode_records(
    data: bytes, *, first_offset: int = ..., check_crc: bool = ..., decompressed_bytes_max: int
) -> list[Record]:
    """The records of whole batches from an offset on, control batches left out. RecordsDamagedError."""

def decode_columns(
    data: bytes, *, first_offset: int = ..., check_crc: bool = ..., decompressed_bytes_max: int
) -> RecordColumns:
    """The same as columns. Releases the GIL. RecordsDamagedError, also for more than 2 GiB in a column."""

def record_batches(data: bytes) -> list[RecordBatch]:
    """The whole batches, control batches too. RecordsDamagedError where bytes can be no batch."""

def next_offset(data: bytes) -> int | None:
    """Behind the last whole batch, whatever it holds. RecordsDamagedError."""

def encode_batch(
    records: Iterable[object],
    *,
    compression: str = ...,
    level: int | None = ...,
    base_offset: int = ...,
    leader_epoch: int = ...,
    producer_id: int = ...,
    producer_epoch: int = ...,
    base_sequence: int = ...,
    transactional: bool = ...,
    log_append_time_ms: int | None = ...,
) -> bytes:
    """One batch of rows: tuples (timestamp in ms, key, value[, headers]), or objects with those attributes.

    ValueError: no rows, no such codec or level. TypeError: a row of another kind. RecordsDamagedError: too large.
    """

def encode_end_transaction_marker(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """A control batch with one COMMIT or ABORT."""

# ---- a client of brokers ----

class ClientError(Exception):
    """A call to a cluster that failed; the text says what, where, why and how to go on."""

    topic: str | None
    partition: int | None
    error_code: int | None
    """The protocol's code, where a broker told one (facts 12)."""

class UnreachableError(ClientError):
    """No answer: the broker is not there yet, is gone, or did not answer in time. Another try may help."""

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

def digest_rows(
    topic: str,
    partition: int | object | None,
    keys: object | None,
    values: object | None,
    headers: object | None = None,
    timestamps: object | None = None,
) -> int:
    """A number of 64 bits that tells whether two attempts had the same rows; columns are as for `produce`.

    Order does not matter, and digests of portions add up (modulo 2**64). It guards against accidents, not malice.
    """

@final
class DecodedValues:
    """Values decoded to an Arrow array: `pyarrow.array(values)` takes it over without a copy."""

    @property
    def bad(self) -> list[int]:
        """The places of those that could not be decoded, ascending; they are null."""
    @property
    def why(self) -> str | None:
        """What is wrong with the first of them."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Schema and array as capsules. May be called again."""

    def __len__(self) -> int: ...

@final
class ValueDecoder:
    """Decodes Avro and Protobuf to Arrow, by programs that `klamm.spark.formats` makes of schemas. Thread-safe.

    Columns of byte strings are any that have `__arrow_c_array__`; calls with them release the GIL.
    """

    def __new__(cls, shape: str, *, framed: bool) -> Self:
        """`shape`: the column as JSON, `[format, [[name, shape], ...]]`. `framed`: values have Confluent's header."""

    def learn(self, schema_id: int | None, program: str) -> None:
        """The program, as JSON, for values of a schema; None: for all that have none. ValueError: it does not fit."""

    def unknown(self, values: object) -> list[int]:
        """The ids of schemas among values that there is no program for."""

    def decode(self, values: object) -> DecodedValues:
        """The same number of values, null where one is null or bad."""

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
class ChannelQueue:
    """Connections for an event loop, and what happens to them, to be taken by the loop when `fd` is readable.

    The engine decides nothing here: when to connect and how long to wait is the owner's to say.
    """

    def __new__(cls) -> Self:
        """OSError where there is no descriptor or thread for it."""

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
    then on. It can be pickled, and is connected anew where it is unpickled; after a fork the child needs one of its
    own. Every call raises ClientError, and ValueError for arguments that make no sense.
    """

    def __new__(cls, bootstrap_servers: str, config: Mapping[str, str] | None = None) -> Self:
        """Keys are those of Apache Kafka's clients. ConfigError: one that is unknown, or has no such value.

        Nothing is connected to before the first call.
        """

    def topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, ascending."""

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, ascending, asked for anew. A new topic is waited for 1.5 s."""

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
        tells of records of earlier calls, once: after it the producer begins anew. ClientError for a record that is
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
        committed before, that is told only to who asks for the topic.
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

# ---- what formatting a directory writes ----

def bootstrap_checkpoint(records: Sequence[bytes], now_ms: int) -> bytes:
    """The content of `bootstrap.checkpoint`: framed records between a snapshot header and footer (facts 1.6)."""

def voters_checkpoint(kraft_version: int, voters: Sequence[tuple[int, bytes, str, str, int]], now_ms: int) -> bytes:
    """The content of the snapshot 0-0 of a dynamic quorum; a voter is id, directory id, listener, host, port."""

# ---- messages ----

@final
class MessageSchema:
    """A structure of a Kafka message at one version, and the class whose objects carry it.

    A field is (attribute or None, kind, is_array, is_nullable, tag or None, default, from_wire, to_wire); kind is the
    name of a primitive, or the schema of a structure; the last two, where given, convert a value from and to the wire's
    own form (int, str, bytes; an id is 16 bytes). `absent` lists attributes without a field, with their value.
    """

    def __new__(
        cls,
        class_: type,
        is_flexible: bool,
        fields: Sequence[
            tuple[
                str | None,
                str | MessageSchema,
                bool,
                bool,
                int | None,
                object,
                Callable[[Any], object] | None,
                Callable[[Any], object] | None,
            ]
        ],
        absent: Sequence[tuple[str, object]],
    ) -> MessageSchema: ...
    def read(self, body: bytes) -> Any:
        """The object in `body`; its attributes are set past `__init__`. ValueError when the bytes are wrong."""

    def write(self, value: object) -> bytes:
        """The bytes of an object. TypeError names the attribute whose value does not fit."""

# ---- metadata records and the image ----

class MetadataRecordError(ValueError):
    """Bytes that are no metadata record this version knows, or a record that cannot be written in a version."""

def encode_metadata_record(record_type: int, version: int, record: object) -> bytes:
    """The framed record; fields are read as attributes. klamm.protocol.generated.metadata_records is the typed door."""

def decode_metadata_record(data: bytes) -> tuple[int, int, dict[str, Any]]:
    """Type, version and fields of the record that is all of `data`. MetadataRecordError."""

def metadata_record_version(record_type: int, metadata_version: int) -> int:
    """The highest version of a record that may be written at a level of metadata.version (facts 1.3)."""

def metadata_record_schemas() -> list[dict[str, Any]]:
    """The description of every record: what tools/generate_metadata_records.py reads."""

class MetadataReplayError(ValueError):
    """A record does not fit the image it is applied to; the text names the record. The image is as it was."""

@final
class Image:
    """The metadata of a cluster: immutable, cheap to keep. Unknown names and ids give None or nothing, not an error."""

    def __new__(cls) -> Self: ...
    def apply(self, records: Sequence[bytes]) -> Image:
        """The image with more records, all or none. MetadataReplayError."""
    def apply_batches(self, batches: bytes) -> Image:
        """The image with whole batches of the metadata log, which set its provenance. Batches that it holds already and
        control batches are passed over. MetadataReplayError."""
    def delta_since(self, older: Image) -> Delta:
        """What is different here; cheap when the two share most. Compare `stable` images: a transaction may be open."""
    def with_provenance(self, last_offset: int, last_epoch: int, last_timestamp_ms: int) -> Image:
        """The same image, said to hold the log up to a record: its offset, epoch and append time."""
    @property
    def last_offset(self) -> int:
        """-1 when never said; so are the next two."""
    @property
    def last_epoch(self) -> int: ...
    @property
    def last_timestamp_ms(self) -> int: ...
    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open. AbortTransactionRecord brings back the image before it."""
    @property
    def stable(self) -> Image:
        """The image without what an open transaction wrote: what may be published."""
    @property
    def metadata_version(self) -> int | None: ...
    @property
    def is_elr_enabled(self) -> bool: ...
    def features(self) -> dict[str, int]:
        """Finalized levels by name, metadata.version among them; never kraft.version."""
    @property
    def topic_count(self) -> int: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def leaderless_partition_count(self) -> int: ...
    @property
    def imbalanced_partition_count(self) -> int:
        """Partitions led by another broker than the first replica."""
    @property
    def reassigning_partition_count(self) -> int: ...
    def topic_id(self, name: str) -> bytes | None: ...
    def topic_name(self, topic_id: bytes) -> str | None: ...
    def topic_names(self) -> list[str]:
        """In ascending order; sorted anew only after a topic came or went."""
    def partition(self, topic_id: bytes, index: int) -> PartitionInfo | None: ...
    def partitions(self, topic_id: bytes) -> list[PartitionInfo]:
        """By ascending number."""
    def topic_partition_count(self, topic_id: bytes) -> int: ...
    def reassigning_partitions(self) -> list[tuple[bytes, int]]: ...
    def broker(self, broker_id: int) -> BrokerInfo | None: ...
    def broker_ids(self) -> list[int]: ...
    def broker_partition_counts(self, broker_id: int) -> BrokerPartitionCounts: ...
    def controller(self, controller_id: int) -> ControllerInfo | None: ...
    def controller_ids(self) -> list[int]: ...
    def configs(self, resource_type: int, name: str) -> dict[str, str]:
        """What is set for exactly this resource: 2 topic, 4 broker ("" is the default of all), 16 metrics, 32 group."""
    def config(self, resource_type: int, name: str, key: str) -> str | None: ...
    def config_resources(self, resource_type: int) -> list[str]:
        """Names of the resources of a type that have anything set."""
    def quotas(self) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Entity (type to name, None is the default entity) and its quotas by key."""
    def quota(self, entity: dict[str, str | None]) -> dict[str, float]: ...
    @property
    def next_producer_id(self) -> int | None:
        """First id that no block has; None when no block was given out."""
    def acls(self) -> list[AclInfo]: ...
    def acl(self, acl_id: bytes) -> AclInfo | None: ...
    def scram_credential(self, mechanism: int, user: str) -> ScramInfo | None:
        """Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""
    def scram_users(self) -> list[tuple[int, str]]:
        """Mechanism and user of every credential."""
    def delegation_token(self, token_id: str) -> DelegationTokenInfo | None: ...
    def delegation_token_ids(self) -> list[str]: ...

@final
class Delta:
    """What differs between two images. Topics are (id, name)."""

    @property
    def is_empty(self) -> bool: ...
    @property
    def created_topics(self) -> list[tuple[bytes, str]]: ...
    @property
    def deleted_topics(self) -> list[tuple[bytes, str]]: ...
    @property
    def changed_topics(self) -> list[tuple[bytes, str, list[int]]]:
        """Topics that were there before, with their partitions that are new or changed."""
    @property
    def changed_configs(self) -> list[tuple[int, str]]:
        """Type and name of resources with a value set, changed or gone; a broker's also when set to what it was."""
    @property
    def changed_brokers(self) -> list[int]:
        """Registered, changed or gone; so are the next ones."""
    @property
    def changed_controllers(self) -> list[int]: ...
    @property
    def changed_features(self) -> list[str]: ...
    @property
    def changed_quotas(self) -> list[dict[str, str | None]]: ...
    @property
    def changed_acls(self) -> list[bytes]: ...
    @property
    def changed_scram(self) -> list[tuple[int, str]]:
        """Mechanism and user."""
    @property
    def changed_delegation_tokens(self) -> list[str]: ...
    @property
    def producer_ids_changed(self) -> bool: ...

@final
class PartitionInfo:
    """One partition. Directories are parallel to the replicas."""

    @property
    def index(self) -> int: ...
    @property
    def replicas(self) -> list[int]: ...
    @property
    def isr(self) -> list[int]: ...
    @property
    def leader(self) -> int:
        """-1 for none."""
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def leader_recovery_state(self) -> int:
        """0 recovered, 1 recovering from an unclean election."""
    @property
    def elr(self) -> list[int]: ...
    @property
    def last_known_elr(self) -> list[int]: ...
    @property
    def adding_replicas(self) -> list[int]: ...
    @property
    def removing_replicas(self) -> list[int]: ...
    @property
    def directories(self) -> list[bytes]: ...

@final
class EndpointInfo:
    """Where a node listens; the protocol's id: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def security_protocol(self) -> int: ...

@final
class SupportedFeatureInfo:
    """The levels of a feature that a node supports."""

    @property
    def name(self) -> str: ...
    @property
    def level_min(self) -> int: ...
    @property
    def level_max(self) -> int: ...

@final
class BrokerPartitionCounts:
    """How many partitions a broker leads, is in the ISR of, in the ELR of, and a replica of."""

    @property
    def leaders(self) -> int: ...
    @property
    def in_sync(self) -> int: ...
    @property
    def eligible(self) -> int: ...
    @property
    def replicas(self) -> int: ...

@final
class BrokerInfo:
    """A registered broker."""

    @property
    def id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def incarnation_id(self) -> bytes: ...
    @property
    def endpoints(self) -> list[EndpointInfo]: ...
    @property
    def features(self) -> list[SupportedFeatureInfo]: ...
    @property
    def rack(self) -> str | None: ...
    @property
    def fenced(self) -> bool: ...
    @property
    def in_controlled_shutdown(self) -> bool: ...
    @property
    def is_active(self) -> bool:
        """Neither fenced nor in controlled shutdown."""
    @property
    def log_dirs(self) -> list[bytes]: ...
    @property
    def cordoned_log_dirs(self) -> list[bytes] | None:
        """None until the broker reported them."""
    @property
    def has_uncordoned_dir(self) -> bool: ...
    @property
    def default_dir(self) -> bytes:
        """What a new replica is recorded with: the only directory, or UNASSIGNED, or of an old broker zero."""
    def has_online_dir(self, directory_id: bytes) -> bool: ...

@final
class ControllerInfo:
    """A registered controller (KIP-919)."""

    @property
    def id(self) -> int: ...
    @property
    def incarnation_id(self) -> bytes: ...
    @property
    def zk_migration_ready(self) -> bool: ...
    @property
    def endpoints(self) -> list[EndpointInfo]: ...
    @property
    def features(self) -> list[SupportedFeatureInfo]: ...

@final
class AclInfo:
    """One ACL; the numbers are the protocol's."""

    @property
    def id(self) -> bytes: ...
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def pattern_type(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...

@final
class ScramInfo:
    """A SCRAM credential."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...

@final
class DelegationTokenInfo:
    """A delegation token; timestamps in ms."""

    @property
    def token_id(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def requester(self) -> str: ...
    @property
    def renewers(self) -> list[str]: ...
    @property
    def issue_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def expiration_timestamp(self) -> int: ...

# ---- storage ----

class StorageError(Exception):
    """A file or folder that cannot be used; the text names it, what went wrong, and the way out."""

@final
class MetadataLog:
    """The log of `__cluster_metadata-0` with its snapshots (facts 3.6, 3.7). Every method may raise StorageError.

    Nothing blocks but the constructor, `truncate_to`, `delete_before`, `install_received_snapshot` and `close`: appends
    go to the page cache.
    """

    def __new__(
        cls,
        directory: str | PathLike[str],
        *,
        segment_bytes: int,
        segment_ms: int,
        now_ms: int,
        is_volatile: bool = False,
        accept_loss: bool = False,
        voters: tuple[int, Sequence[int]] | None = None,
        advice: str | None = None,
    ) -> Self:
        """Open the folder (made when absent) and check every batch in it. Volatile: appends and flushes never sync.

        A log that lost records (see `proven_end`) is refused, and nothing is changed. It is cut where it is damaged
        when `accept_loss`, or when other voters have the records: `voters` is this node's id and the configured voters.
        `advice`: what the error says that can be done, for a log that no command of klamm knows.
        """
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
    @property
    def proven_end(self) -> tuple[int, int]:
        """The log held durably what ends here (offset, epoch), at least. It is past the end while records are lost."""
    @property
    def size_bytes(self) -> int: ...
    def counters(self) -> dict[str, int]:
        """What the log has done since it was opened, by name; see `klamm.node.counters`."""
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(end offset, epoch) of the largest epoch that is not above `epoch`."""
    def epoch_at(self, offset: int) -> int: ...
    def append(self, records: Sequence[bytes], epoch: int, timestamp_ms: int) -> int:
        """One batch of record values; its last offset. ValueError: larger than 8 MiB, nothing appended."""
    def append_control(self, records: Sequence[tuple[int, bytes]], epoch: int, timestamp_ms: int) -> int:
        """One control batch of (type, value); its last offset."""
    def append_fetched(self, batches: bytes, max_epoch: int, now_ms: int) -> int:
        """Whole batches of the leader; the new end offset. ValueError: they do not fit behind what is here."""
    def start_flush(self) -> None:
        """Make durable what is appended, on a thread of the engine."""
    @property
    def flush_fd(self) -> int:
        """A descriptor that is readable while there is something for `take_flushed`."""
    def take_flushed(self) -> list[tuple[int, str | None]]:
        """Of each flush that has ended since the last call: the flushed offset (-1 for none), and what went wrong."""
    def read(self, offset: int, max_bytes: int) -> bytes: ...
    def replay(self, image: Image, start: int, end: int) -> Image:
        """`image` with the records of `[start, end)`. MetadataReplayError: a record does not fit."""
    def control_records(self, start: int = ...) -> list[tuple[int, int, bytes]]:
        """(offset, type, value) from `start` (-1) on; those of the latest snapshot at the last offset it contains."""
    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop what is at or above `offset`, with all of a batch that holds it."""
    def bytes_from(self, offset: int) -> int: ...
    def snapshots(self) -> list[tuple[int, int, int, int]]:
        """(end offset, epoch, bytes, last contained log timestamp in ms), oldest first."""
    def snapshot_path(self, end_offset: int, epoch: int) -> str: ...
    def snapshot_finished(self, end_offset: int, epoch: int) -> None: ...
    def delete_before(self, end_offset: int, epoch: int, now_ms: int) -> bool: ...
    def read_snapshot(self, end_offset: int, epoch: int, position: int, max_bytes: int) -> bytes | None:
        """Bytes of a finished snapshot; None: there is no such snapshot."""
    def append_snapshot_slice(self, end_offset: int, epoch: int, position: int, data: bytes) -> None:
        """Keep a slice of the leader's snapshot; position 0 begins anew. ValueError: not the next, nothing kept."""
    def check_received_snapshot(self, on_done: Callable[[str | None], None]) -> None:
        """Check every batch of it and make it durable; `on_done(error)` is called on a thread of the engine."""
    def received_snapshot_path(self) -> str | None:
        """Where the snapshot lies that is being received."""
    def install_received_snapshot(self, end_offset: int, epoch: int, now_ms: int) -> None:
        """Let the log begin and end with it. Blocks, durable when it returns. ValueError: not received and checked."""
    def drop_received_snapshot(self) -> None: ...
    def close(self) -> None: ...

@final
class FetchAnswers:
    """A leader's answers to the quorum's fetches on the network's threads, while there is nothing to decide.

    A fetch is taken here when it comes by a controller's listener in version 17 or 18, its epoch and its last fetched
    epoch are the one that is led, its offset lies above that epoch's start and where this log goes on, and `know` named
    its replica. It gets what there is, or waits for records (a voter), for a higher high watermark, or for its time.
    Every other fetch is a request as before; so is each from `end` on, those that wait included.
    """

    def __new__(cls, log: MetadataLog, engine: Engine) -> Self:
        """Of the log that the engine's node has; once for both. OSError: there is no descriptor left."""
    @property
    def fd(self) -> int:
        """A descriptor that is readable when more is committed, or much was taken; the answers close it."""
    @property
    def has_news(self) -> bool:
        """Whether that is so now."""
    def begin(
        self,
        *,
        cluster_id: str,
        leader_id: int,
        epoch: int,
        start_offset: int,
        high_watermark: int,
        voters: Sequence[tuple[int, int]],
        counts_itself: bool,
        endpoints: Sequence[tuple[str, str, int]],
        patience_ms: int,
    ) -> None:
        """Answer by that from now on; nobody is known yet.

        `start_offset`: of the epoch, above which lies what this leader may commit. `voters`: id and end offset of each
        but this replica, -1 where none is known. `endpoints`: listener, host and port. When what was taken has not been
        asked for in `patience_ms`, all fetches are requests again: the others are to find out about this process.
        """
    def know(self, replica_id: int, directory_id: bytes | None, counts: bool) -> int | None:
        """Take that replica's fetches; `counts`: as those of the voter of that id.

        A number for it, or None when they remain requests: nothing is answered, it is a voter's id that does not count,
        or a thousand are known.
        """
    def offer(self) -> None:
        """Let voters have all the log has now; until then only a higher high watermark or their time ends a wait."""
    def raise_high_watermark(self, offset: int) -> None:
        """So much is known to be committed, by other ways too."""
    def tell_voters(self) -> None:
        """Let voters that wait know what is committed: until then only their next records or their time end a wait."""
    def take(self) -> list[tuple[int, int, int, int]]:
        """What was taken since the last call: the replica's number, fetch offset, where the log ended then, age in ms.

        Lowers the descriptor.
        """
    def end(self) -> list[tuple[int, int, int, int]]:
        """Answer nothing any more when this returns; what was taken since the last `take`."""

@final
class FetchStream:
    """A follower's fetches from the leader of the quorum on a thread of their own, while there is nothing to decide.

    Each plain answer is appended and flushed, and the next fetch acknowledges it. Every other answer ends the run and
    comes here as it is. No method waits for the leader; `hold`, `stop` and `release` wait for an append at most.
    """

    def __new__(cls, log: MetadataLog) -> Self:
        """OSError: there is no descriptor left."""
    @property
    def fd(self) -> int:
        """A descriptor that is readable when more is committed, or the run has ended; the stream closes it."""
    def start(
        self,
        host: str,
        port: int,
        *,
        version: int,
        client_id: str,
        cluster_id: str | None,
        replica_id: int,
        directory_id: bytes | None,
        epoch: int,
        leader_id: int,
        high_watermark: int,
        max_wait_ms: int,
        max_bytes: int,
        timeout_ms: int,
        flushes: bool,
    ) -> None:
        """Begin a run, which nobody holds, from the log's end on; the one before is stopped.

        `flushes`: a fetch acknowledges only what is flushed. ValueError: a version but 17 or 18, a text that is
        too long. OSError: no thread can be started.
        """
    def hold(self) -> None:
        """Return when the run is between two pieces of work: it appends and sends nothing before `release` or `stop`.

        A flush that is under way goes on, and answers are still heard.
        """
    def release(self) -> None:
        """Let a run that is held go on."""
    def stop(self) -> None:
        """End the run, held or not: from here on it appends, sends and tells nothing. A flush may still go on."""
    def take(self) -> tuple[int, int, int, int, int, int, tuple[str, int, bytes] | tuple[str, str] | None] | None:
        """What is new; lowers the descriptor. None: there is no run, or it has heard nothing since the last call.

        Fetch offset, last fetched epoch and told high watermark of the last request, ms since that was sent, ms since
        the last answer (-1: none came since the last call), the leader's high watermark; and how the run ended, told
        once: ("answer", version, body), ("failed", why there is no answer) or ("disk", which flush failed). Numbers are
        -1 while there is none: a run that could not connect has sent nothing.
        """
    def close(self) -> None:
        """Stop, and wait for the thread: for the flush that is under way."""

@final
class MetadataReader:
    """Reads the folder of a metadata log beside whoever writes it: takes no lock, changes no file. StorageError.

    What is half written at the log's end is not there yet; what is damaged elsewhere is an error that names the file.
    """

    def __new__(cls, directory: str | PathLike[str]) -> Self:
        """Of `<metadata.log.dir>/__cluster_metadata-0`; nothing is read yet."""
    def start_offset(self) -> int | None:
        """Where the first segment begins; None when there is none."""
    def end(self) -> tuple[int, str | None]:
        """The offset behind the last whole batch, and what stands there if it is neither nothing nor zeroes."""
    def intact_end(self) -> tuple[int, int, str | None]:
        """Offset and epoch where the intact part ends, and what is lost after it, in words. Reads every batch."""
    def offset_after_time(self, timestamp_ms: int) -> int:
        """The offset of the first batch that is later, or the log's end."""
    def snapshots(self) -> list[tuple[int, int, str]]:
        """End offset, epoch and file name of the finished ones, oldest first."""
    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole, checked batches from the one that holds `offset` on, at least one; empty at the log's end.

        IndexError: the record is cleaned away, or the log was cut below it.
        """

_StorageFinding = tuple[str, Path, int | None, tuple[int, int] | None, str, str]
_StorageLog = tuple[Path, bytes | None, int, int, int, int, int, list[_StorageFinding]]
_StorageDirectory = tuple[Path, bool, list[_StorageLog], list[_StorageFinding]]

@final
class StorageCheck:
    """Looks at the files of a stopped node, klamm's or Apache Kafka's. Takes no lock, changes no file, raises nothing.

    A finding is kind (damaged, missing, note), path, byte, offsets `[first, next)`, reason, and what a start does.
    """

    def __new__(cls) -> Self: ...
    def directories(self, paths: Sequence[str | PathLike[str]], is_deep: bool, threads: int) -> list[_StorageDirectory]:
        """Log directories, or folders of single logs: path, whether the last stop was clean, logs, findings.

        A log is path, topic id, start offset, end offset, segments, batches, bytes, findings. `is_deep`: every
        checksum is verified, not only those that a start verifies.
        """
    @staticmethod
    def snapshot(path: str | PathLike[str]) -> _StorageFinding | None:
        """What is wrong with a metadata snapshot, or with `bootstrap.checkpoint`."""
    def progress(self) -> tuple[int, int]:
        """Bytes of segments that were read, and how many there are as far as that is known. From any thread."""
    def cancel(self) -> None:
        """End `directories` soon, with part of the findings. From any thread."""

def metadata_rows(data: bytes) -> list[tuple[int, int, int, int, int | None, bytes]]:
    """Of each record in whole batches: offset, the batch's base offset, epoch, time in ms, type of a control record or
    None, value. RecordsDamagedError."""

@final
class MetadataColumns:
    """Metadata records as Arrow columns: `pyarrow.record_batch(columns)` takes them over without a copy."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Schema and array as capsules, of a struct of the columns. May be called again."""

    def __len__(self) -> int:
        """Records."""

def metadata_columns(data: bytes, record_type: int) -> MetadataColumns:
    """The records of one type in whole batches, which are checked.

    offset and batch (its first offset) int64, epoch int32, timestamp (us, UTC, null where it is not known), version
    int32, and a column for each field of the type by its name: int32 for whole numbers up to 32 bits, ids as text.
    Passwords, values of keys that nobody knows and SCRAM credentials are "(hidden)". RecordsDamagedError;
    MetadataRecordError: a record cannot be read; the text names its offset. ValueError: there is no such type.
    """

def metadata_overview(
    data: bytes,
    *,
    types: Sequence[int] | None = None,
    controls: Sequence[int] | None = None,
    with_fields: bool = True,
) -> MetadataColumns:
    """Records in whole batches, raft's own among them; with lists, those of these types and types of control records.

    offset, batch, epoch, timestamp as above, type (Kafka's name), control bool, version, topic_id, partition and broker
    (null where the record names none), and fields (JSON, with the same hidden). What cannot be read is there with its
    bytes in hexadecimal. RecordsDamagedError.
    """

# ---- elections, placement, new partitions ----

BrokerEvent = Literal[
    "fenced", "unfenced", "controlled_shutdown", "unregistered", "unclean_shutdown"
]  # in the stub only
ElectionType = Literal["preferred", "online", "unclean"]  # in the stub only

@final
class Elections:
    """Leader elections as an image says (facts 5.3, KIP-966); what comes back are encoded PartitionChangeRecords.

    The keywords are the controller's own id and static configuration: a topic's value, the dynamic one of the node and
    the cluster's dynamic default come first, and those are in the image.
    """

    def __new__(
        cls, image: Image, *, node_id: int, min_insync_replicas: int, unclean_leader_election_enable: bool
    ) -> Self: ...
    def for_broker(self, event: BrokerEvent, broker_id: int) -> list[bytes]:
        """What follows for all partitions from what happened to a broker; its registration's record is not among them.

        A broker that registers again was "fenced" when it had shut down cleanly, else it had an "unclean_shutdown".
        """
    def part_for_broker(
        self, event: BrokerEvent, broker_id: int, place: tuple[int, int], *, records_max: int, partitions_max: int
    ) -> tuple[list[bytes], tuple[int, int] | None]:
        """A part of the same, from a place on, (0, 0) at first; and where the next part begins, None behind the last.

        A part ends at `records_max` records, or behind the topic with which `partitions_max` were looked at. The image
        of the next part may be a later one: a topic keeps its place.
        """
    def for_offline_dirs(self, broker_id: int, directories: Sequence[bytes]) -> list[bytes]:
        """What follows from directories of a broker going offline."""
    def assign_directories(
        self, broker_id: int, assignments: Sequence[tuple[bytes, bytes, int]]
    ) -> tuple[list[int], list[bytes]]:
        """Directory id, topic id, partition: each one's error code, and the records (KIP-858)."""
    def preferred_leaders(self, limit: int) -> list[bytes]:
        """At most `limit` records that bring leadership back to first replicas."""
    def unclean_leaders(self, limit: int) -> list[bytes]:
        """At most `limit` records that give leaderless partitions a leader, where the topic allows an unclean one."""
    def elect_leaders(
        self, election: Literal["preferred", "unclean"], partitions: Sequence[tuple[bytes, int]] | None = None
    ) -> list[tuple[bytes, int, int, bytes | None]]:
        """ElectLeaders: topic id, partition, error code and record of the partitions, or without any of all in need."""
    def change(
        self,
        topic_id: bytes,
        index: int,
        *,
        isr: Sequence[int] | None = None,
        replicas: Sequence[int] | None = None,
        removing_replicas: Sequence[int] | None = None,
        adding_replicas: Sequence[int] | None = None,
        leader_recovery_state: int | None = None,
        directory: tuple[int, bytes] | None = None,
        election: ElectionType | None = None,
    ) -> bytes | None:
        """The record that makes one partition as wanted; None when nothing changes or there is no such partition.

        Completes a reassignment that can be completed. `directory` is a broker and its replica's directory. Without an
        election the leader is sought online, or unclean where the topic allows it; Kafka passes "online" when it starts
        a reassignment or assigns directories.
        """

class PlacementError(ValueError):
    """Replicas cannot be placed, or a partition would have no replica on an active broker."""

@final
class Placer:
    """Striped, rack-aware placement (facts 5.6) on the brokers of an image that can take replicas. The seed decides."""

    def __new__(cls, image: Image, seed: int) -> Self: ...
    def place(self, partition_count: int, replication_factor: int) -> list[list[int]]:
        """The replicas of each partition, its preferred leader first. PlacementError."""

def topic_records(
    image: Image,
    name: str,
    topic_id: bytes,
    config: Sequence[tuple[str, str]],
    assignments: Sequence[Sequence[int]],
) -> list[bytes]:
    """TopicRecord, ConfigRecords and PartitionRecords of a new topic. PlacementError."""

def partition_records(
    image: Image, topic_id: bytes, first_index: int, assignments: Sequence[Sequence[int]]
) -> list[bytes]:
    """PartitionRecords from `first_index` on; in sync are the replicas on active brokers. PlacementError."""

# ---- the engine of a node ----

@final
class CommitRequest:
    """An OffsetCommit (API 8), its topics and partitions looked up in an image."""

    def __new__(
        cls,
        group_id: str,
        topics: Sequence[tuple[str, bytes, Sequence[tuple[int, int, int, str | None]]]],
        *,
        version: int = 9,
        generation_id_or_member_epoch: int = ...,
        member_id: str = "",
        group_instance_id: str | None = None,
        retention_time_ms: int = ...,
    ) -> Self:
        """Topics that exist: name, id, and (partition, offset, leader epoch, metadata) of what to commit.

        What is left out is -1.
        """
    @staticmethod
    def read(version: int, body: bytes, image: Image) -> CommitRequest:
        """A body without header. ValueError: it does not follow the schema."""
    @property
    def version(self) -> int: ...
    @property
    def group_id(self) -> str: ...
    @property
    def generation_id_or_member_epoch(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def retention_time_ms(self) -> int:
        """-1: as the configuration says."""
    @property
    def offset_count(self) -> int:
        """Offsets of partitions that exist."""
    def changes(
        self,
        now_ms: int,
        expire_ms: int,
        metadata_max: int,
        record_offset: int,
        make: Callable[[tuple[int, int, str, int, int, bytes, int]], _T],
    ) -> tuple[list[tuple[bytes, bytes | None]], int, list[tuple[str, int, _T]], list[int]]:
        """What to commit: records for `__consumer_offsets` and their bytes, changes, and an error code for each offset.

        Metadata of more than `metadata_max` UTF-16 units is refused. A change is topic, partition and what `make` makes
        of offset, leader epoch, metadata, now, expiry (-1: none of its own), topic id and place among the records,
        counted from `record_offset` on. OverflowError: a record cannot hold a string of that length.
        """
    def offsets(self) -> list[tuple[str, bytes, int, int, int, str]]:
        """Topic, its id, partition, offset, leader epoch and metadata of each of them, in order."""
    def answer(self, codes: int | Sequence[int]) -> bytes:
        """The answer's body without header: one error code for all of them, or one for each in order.

        The partitions that do not exist have errors of their own. ValueError: not as many codes.
        """

def offset_record_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset in `__consumer_offsets`. OverflowError: a name is longer than 32,767 bytes."""

def offset_record_value(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int,
    topic_id: bytes,
) -> bytes:
    """Its value: version 4, or version 1 with an expiry, which is -1 for none. OverflowError as above."""

@final
class RequestEvent:
    """A request for a handler in Python. Each is answered once, by its handle."""

    @property
    def handle(self) -> int: ...
    @property
    def connection_id(self) -> int: ...
    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...
    @property
    def client_id(self) -> str: ...
    @property
    def listener(self) -> str:
        """Its name."""
    @property
    def on_controller(self) -> bool:
        """Whether that is a controller's listener."""
    @property
    def principal(self) -> tuple[str, str, bool] | None:
        """Type, name, and whether a delegation token authenticated it; None: User:ANONYMOUS."""
    @property
    def address(self) -> str:
        """The client's, without port."""
    @property
    def body(self) -> bytes:
        """What follows the request's header."""
    @property
    def age_ms(self) -> int:
        """How long ago its last byte was received."""
    @property
    def timeout_ms(self) -> int:
        """How long after its arrival something is tried for it, unless it names a time-out itself."""

@final
class CommitEvent:
    """An OffsetCommit; one that cannot be read is a RequestEvent."""

    @property
    def handle(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def request(self) -> CommitRequest: ...

@final
class AckedEvent:
    """What became of an append of this node's own."""

    @property
    def token(self) -> int: ...
    @property
    def error_code(self) -> int:
        """0: it is committed."""

@final
class AutoCreateEvent:
    """Clients asked for topics that do not exist and may be created. Topics come again until they exist."""

    @property
    def topics(self) -> list[str]: ...

@final
class ConnectionClosedEvent:
    """A connection that had sent requests to Python is gone. What it left unanswered needs no answer."""

    @property
    def connection_id(self) -> int: ...

@final
class DirFailedEvent:
    """A log directory is out of use."""

    @property
    def directory_id(self) -> bytes: ...

@final
class LogEvent:
    """A line for the log."""

    @property
    def level(self) -> Literal["info", "warning", "error"]: ...
    @property
    def message(self) -> str: ...

EngineEvent = (  # in the stub only
    RequestEvent | CommitEvent | AckedEvent | AutoCreateEvent | ConnectionClosedEvent | DirFailedEvent | LogEvent
)

@final
class Distribution:
    """The values of one metric since it has been measured: in ms where its name ends so."""

    @property
    def count(self) -> int: ...
    @property
    def sum(self) -> float: ...
    def quantile(self, share: float) -> float:
        """What this share (0 to 1) of all values does not exceed, to an eighth of itself; 0 if there is none."""

@final
class Api:
    """One row of the table of APIs (rust/wire/src/api/table.rs), Kafka 4.3's."""

    @property
    def key(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def versions(self) -> tuple[int, int]:
        """Lowest and highest; unstable versions are left out."""
    @property
    def on_broker(self) -> Literal["engine", "python", "not yet"] | None:
        """What serves it on the listeners of brokers; None where Kafka does not."""
    @property
    def on_controller(self) -> Literal["engine", "python", "not yet"] | None:
        """The same on the listeners of controllers."""
    @property
    def is_forwarded(self) -> bool:
        """Whether a broker forwards it, wholly or in part, to the active controller (KIP-590)."""
    @property
    def is_before_authentication(self) -> bool: ...
    @property
    def checks(self) -> list[tuple[str, str]]:
        """Operation and kind of resource of each check of an authorizer, in their order."""
    @property
    def quota(self) -> Literal["produce", "fetch", "controller mutation", "request", "exempt"]:
        """The client quota that counts it."""

def apis() -> list[Api]:
    """The table, by key."""

@final
class Boot:
    """The first half of a node's start, without any decision, on a thread of the engine.

    It binds the listeners, locks and lists the log directories, checks the metadata log (made when absent), and where
    that is known to be committed answers ApiVersions from it. All other requests wait for `Engine.open`. `log_dirs` are
    paths with the `directory.id` of each.
    """

    def __new__(
        cls,
        *,
        node_id: int,
        cluster_id: str,
        log_dirs: Sequence[tuple[str | PathLike[str], bytes]],
        settings: Mapping[str, str],
        metadata_dir: str | PathLike[str],
        segment_bytes: int,
        segment_ms: int,
        listeners: Sequence[tuple[str, str, int, bool]],
        features: Sequence[tuple[str, int, int]],
        static_voters: Sequence[int],
        is_volatile: bool = False,
        is_missing_dirs: bool = False,
    ) -> Self:
        """Begin. ConfigError, OSError. `segment_bytes` and `segment_ms` are the metadata log's.

        A listener: name, host, port (0: a free one), and whether it is for controllers. A feature: name, lowest and
        highest level known. `static_voters` are the ids that the configuration names; those of the log come before
        them. Volatile: nothing is ever synced. With directories missing, of which the caller knows, a partition that
        has no files may have them there, so it is not created again.
        """
    def finish(
        self, partition_error: Callable[[int, str | None], Exception]
    ) -> tuple[Engine, MetadataLog, tuple[Image, int], tuple[Image, int] | None, list[tuple[str, int]]]:
        """Wait for what was begun, once. StorageError, OSError: it failed, and nothing is left of it.

        The images, each with the offset behind its last record: the newest snapshot's, and that of the whole log where
        it is known to be committed. Then where each listener is bound. `partition_error` makes the exception of an
        error code and a message that the engine raises for one partition.
        """
    def abandon(self) -> None:
        """Wait for it, and close what was not asked for. StorageError."""

@final
class Engine:
    """One node's log directories, partitions and network. Partitions open when they are used.

    Topics go by id. What concerns one partition raises the exception that was given to `Boot.finish`.
    """

    @property
    def event_fd(self) -> int:
        """Readable while `drain` has something to give; -1 after `shutdown`, which closes it."""
    def drain(self, most: int) -> list[EngineEvent]: ...
    def listen(self, listener: tuple[str, str, int, bool]) -> tuple[str, int]:
        """Name, host, port, whether for controllers: where it listens. OSError."""
    def close_listener(self, name: str) -> bool:
        """Accept nothing more there, and close its connections. False: there is none."""
    def set_listener_limits(
        self, *, most: Mapping[str, int], creation_rate: Mapping[str, int], inter_broker: str | None
    ) -> None:
        """What listeners have of their own instead of max.connections and max.connection.creation.rate, by name.

        The connections of the listener `inter_broker` are not kept out by the limit of all: others are closed for them.
        """
    def open(self, listener: str) -> bool:
        """Answer requests on that listener from now on."""
    def set_supported_features(self, ranges: Sequence[tuple[str, int, int]], kraft_version: int) -> None: ...
    def set_controller_apis(self, apis: Mapping[int, tuple[int, int]] | None) -> None:
        """What the active controller serves, where that is another node: lowest and highest version by API key.

        ApiVersions names no other version of forwarded APIs to clients. None: it is not known, or it is this node.
        """
    def answer(self, answers: Sequence[tuple[int, bytes | None]]) -> None:
        """Handles, each with a response's body without header, or None to close the connection.

        What nobody waits for any more is dropped.
        """
    def publish(self, image: Image) -> list[tuple[bytes, bytes, int]]:
        """Serve this committed image: open partitions follow it, deleted ones are removed.

        Directory id, topic id, partition of those that lie elsewhere than the image says: the controller is to be told.
        """
    def must_recover(self, topic_id: bytes, partition: int) -> bool:
        """Whether the first use of the partition would wait for a recovery: then `open_partition` it on a thread."""
    def open_partition(self, topic_id: bytes, partition: int) -> None: ...
    def open_the_rest(self) -> None:
        """Open the logs that are on disk and not open yet, in the background; set strays aside."""
    def set_settings(self, settings: Mapping[str, str]) -> None: ...
    def append(
        self,
        topic_id: bytes,
        batches: Sequence[tuple[int, int, Sequence[tuple[bytes | None, bytes | None]]]],
        timestamp_ms: int,
        codec: int = 0,
    ) -> None:
        """Append batches with acks=all: partition, token, and (key, value) records. An "acked" event follows for each.

        `codec` is a compression's id in Kafka: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. ValueError: another.
        """
    def read_records(
        self, topic_id: bytes, partition: int, offset: int, max_bytes: int
    ) -> tuple[int, list[tuple[int, bytes | None, bytes | None, int, bool]]]:
        """Next offset, and (offset, key, value, producer id, is control) of records up to the log's end.

        Of a control record the key is its type as two bytes; the producer id is -1 outside transactions.
        """
    def delete_records(self, topic_id: bytes, partition: int, offset: int) -> int:
        """Move the log start; -1 means the high watermark. The new log start."""
    def high_watermark(self, topic_id: bytes, partition: int) -> int: ...
    def producers(self, topic_id: bytes, partition: int) -> list[tuple[int, int, int, int, int, int]]:
        """Producer id, epoch, last sequence, last timestamp in ms, coordinator epoch, open transaction's start."""
    def log_dirs(self) -> list[tuple[Path, bytes, str | None, list[tuple[str, int, int]]]]:
        """Path, directory id, why it is out of use, and (topic, partition, bytes) of what it has or would have."""
    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last clean shutdown, else -1."""
    @property
    def connection_count(self) -> int: ...
    def measure_requests(self, is_on: bool) -> None:
        """Measure the requests that arrive from now on, or stop; at first only their number is counted."""
    def request_metrics(self) -> dict[str, Distribution]:
        """Times and sizes of requests, by the names of Kafka's MBeans (kafka.network:type=RequestMetrics)."""
    def counters(self) -> dict[str, int]:
        """What the network and the partitions' logs have done since the start, by name; see `klamm.node.counters`."""
    def stop_accepting(self) -> None: ...
    def shutdown(self, broker_epoch: int) -> None:
        """Close the network, then the logs, marked as cleanly shut down with that broker epoch."""

# ---- snapshot files ----

def write_snapshot(
    path: str | PathLike[str],
    image: Image,
    *,
    epoch: int,
    last_contained_log_timestamp_ms: int,
    now_ms: int,
    control_records: Sequence[tuple[int, bytes]] = ...,
) -> int:
    """Write a snapshot (facts 3.7) and give its size: durable, read-only, and not there before it is whole.

    `control_records` (type, value) are raft's, for the head of the file. Blocks, without the GIL: call it on a thread.
    StorageError; MetadataRecordError when the image's metadata.version is missing or too old for what it holds.
    """

def load_snapshot(path: str | PathLike[str], end_offset: int, epoch: int) -> Image:
    """The image in a snapshot file, up to the record before `end_offset`. Blocks. StorageError: absent or damaged."""

def read_checkpoint(path: str | PathLike[str]) -> list[bytes]:
    """The metadata records of a file: what bootstrap.checkpoint holds. Blocks. StorageError."""

def write_values_snapshot(
    path: str | PathLike[str],
    values: Sequence[bytes],
    *,
    epoch: int,
    last_contained_log_timestamp_ms: int,
    now_ms: int,
    control_records: Sequence[tuple[int, bytes]] = ...,
) -> int:
    """As write_snapshot, of values that are no metadata records: those of `klamm.raft`'s own state machines."""

def read_values_snapshot(path: str | PathLike[str]) -> list[bytes]:
    """The values of such a file, in order. Blocks. StorageError: absent or damaged."""
