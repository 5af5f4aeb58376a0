"""The engine of one node: its start, its log directories, partitions and network, its events and measurements."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, Self, final

from klamm._engine.client import Conditions
from klamm._engine.groups import CommitRequest
from klamm._engine.metadata import Image
from klamm._engine.quorum import MetadataLog

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
        """The name of the listener."""
    @property
    def on_controller(self) -> bool:
        """Whether it is a controller listener."""
    @property
    def principal(self) -> tuple[str, str, bool] | None:
        """Type, name, and whether a delegation token authenticated the principal; None: User:ANONYMOUS."""
    @property
    def address(self) -> str:
        """The client's address, without port."""
    @property
    def body(self) -> bytes:
        """The bytes after the request's header."""
    @property
    def age_ms(self) -> int:
        """How long ago the last byte of the request was received."""
    @property
    def timeout_ms(self) -> int:
        """The timeout of a request that does not contain one, from its arrival on."""

@final
class CommitEvent:
    """A decoded OffsetCommit; one that cannot be decoded is a RequestEvent."""

    @property
    def handle(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def request(self) -> CommitRequest: ...

@final
class AckedEvent:
    """The result of an append that a part of this node made."""

    @property
    def token(self) -> int: ...
    @property
    def error_code(self) -> int:
        """0: it is committed."""

@final
class VerifyEvent:
    """A produce request waits for its transaction coordinator: see `Engine.on_verified`."""

    @property
    def handle(self) -> int: ...
    @property
    def transactional_id(self) -> str: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def is_adding(self) -> bool:
        """Whether to add the partitions to the transaction (Produce from version 12 on); else they must be in it."""
    @property
    def version(self) -> int:
        """The version of the Produce request."""
    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Topic name and partition, each once."""

@final
class ShareStateEvent:
    """A share partition reads or writes its state at the share coordinator: see `Engine.share_states_answered`."""

    @property
    def request_id(self) -> int: ...
    @property
    def api_key(self) -> int:
        """ReadShareGroupState (84) or WriteShareGroupState (85)."""
    @property
    def group_id(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partition(self) -> int: ...
    @property
    def body(self) -> bytes:
        """The body of a ReadShareGroupState v0, or a WriteShareGroupState v1, of exactly that partition."""

@final
class AutoCreateEvent:
    """Clients asked for topics that do not exist and may be created. A topic is reported again until it exists."""

    @property
    def topics(self) -> list[tuple[str, tuple[str, str, bool] | None, str, str]]:
        """Each with the principal, client id and address of the first client that asked, as in RequestEvent."""

@final
class ConnectionClosedEvent:
    """A connection that had requests in Python was closed. Its pending requests need no response."""

    @property
    def connection_id(self) -> int: ...

@final
class DirFailedEvent:
    """A log directory is offline."""

    @property
    def directory_id(self) -> bytes: ...

@final
class IsrChangedEvent:
    """Leaders propose ISRs: see `Engine.alter_partition_request`."""

@final
class DirectoriesChangedEvent:
    """Replicas move, or have moved, to other log directories: see `Engine.take_directories`."""

@final
class LogEvent:
    """A log message of the engine."""

    @property
    def level(self) -> Literal["info", "warning", "error"]: ...
    @property
    def message(self) -> str: ...

EngineEvent = (  # in the stub only
    RequestEvent
    | CommitEvent
    | AckedEvent
    | VerifyEvent
    | ShareStateEvent
    | AutoCreateEvent
    | ConnectionClosedEvent
    | DirFailedEvent
    | IsrChangedEvent
    | DirectoriesChangedEvent
    | LogEvent
)

@final
class Distribution:
    """The values of one metric since measuring began, in ms if its name ends in Ms."""

    @property
    def count(self) -> int: ...
    @property
    def sum(self) -> float: ...
    def quantile(self, share: float) -> float:
        """This quantile (0 to 1) of the values, with an error of at most an eighth; 0 without values."""

@final
class Boot:
    """The first half of a node's start, on a thread of the engine. It decides nothing.

    It binds the listeners, locks and lists the log directories, and checks the metadata log, or creates it. If all of
    that log is known to be committed, ApiVersions is answered from it. All other requests wait for `Engine.open`.
    `log_dirs` are paths with the `directory.id` of each.
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
        conditions: Conditions | None = None,
    ) -> Self:
        """Begin. ConfigError, OSError. `segment_bytes` and `segment_ms` are the metadata log's.

        A listener: name, host, port (0: a free one), and whether it is for controllers. A feature: name, lowest and
        highest supported level. `static_voters` are the ids in the configuration; voters in the log take precedence.
        Volatile: nothing is ever synced. If directories are missing, a partition without files may have them there, so
        it is not created again. `conditions`: those of a node of an embedded cluster.
        """
    def finish(
        self, partition_error: Callable[[int, str | None], Exception]
    ) -> tuple[Engine, MetadataLog, tuple[Image, int], tuple[Image, int] | None, list[tuple[str, int]]]:
        """Wait for the boot; call it once. Raises StorageError or OSError if it failed, after undoing everything.

        Returns the images, each with the offset after its last record: that of the newest snapshot, and that of the
        whole log if all of it is known to be committed. Then the bound address of each listener. The engine calls
        `partition_error` with an error code and a message for the exception that it raises for one partition.
        """
    def abandon(self) -> None:
        """Wait for the boot, and undo it unless `finish` returned its result. Raises StorageError."""

@final
class LogLoad:
    """A log that is read from its start to its end."""

    def read(self) -> LoadedPart | None:
        """The next part, of tens of MB; None at the log's end. Blocks, without the GIL. Raises PartitionError."""

@final
class LoadedPart:
    """Records that were read."""

    def take(self, count: int) -> list[tuple[int, bytes | None, bytes | None, int, bool]]:
        """The next records, at most `count`, in the form of `Engine.read_records`; [] at the end."""

@final
class Engine:
    """One node's log directories, partitions and network. Partitions open when they are used.

    Topics are identified by their ids. Errors of one partition are raised as the exception given to `Boot.finish`.
    """

    @property
    def event_fd(self) -> int:
        """Readable while `drain` has something to give; -1 after `shutdown`, which closes it."""
    def drain(self, most: int) -> list[EngineEvent]: ...
    def listen(self, listener: tuple[str, str, int, bool]) -> tuple[str, int]:
        """Open a listener: name, host, port, whether for controllers. Returns where it listens. Raises OSError."""
    def close_listener(self, name: str) -> bool:
        """Close a listener and its connections. False: there is no such listener."""
    def set_listener_limits(
        self, *, most: Mapping[str, int], creation_rate: Mapping[str, int], inter_broker: str | None
    ) -> None:
        """The listeners' own max.connections and max.connection.creation.rate, by listener name.

        The limit of the whole broker does not refuse connections of the listener `inter_broker`: others are closed.
        """
    def open(self, listener: str) -> bool:
        """Answer requests on that listener from now on."""
    def set_supported_features(self, ranges: Sequence[tuple[str, int, int]], kraft_version: int) -> None: ...
    def set_controller_apis(self, apis: Mapping[int, tuple[int, int]] | None) -> None:
        """Set the API versions of an active controller on another node: lowest and highest version by API key.

        ApiVersions announces only these versions of forwarded APIs. None: unknown, or this node is the controller.
        """
    def answer(self, answers: Sequence[tuple[int, bytes | None]]) -> None:
        """Handles, each with a response's body without header, or None to close the connection.

        Answers of closed connections are dropped.
        """
    def on_verified(self, verified: Sequence[tuple[int, Sequence[int]]]) -> None:
        """By handle: the coordinator's error code for each partition of a `VerifyEvent`, in order, or one for all.

        Pass the answers of a turn of the loop together: each call wakes a thread of the network.

        0: verified, or added. UNSUPPORTED_VERSION: the coordinator cannot verify, and the batch is appended all the
        same. Other codes are the coordinator's own; the engine translates them for the version of the request. Without
        an answer the request waits for 30 seconds, and holds back its connection.
        """
    def share_states_answered(self, answers: Sequence[tuple[int, int, bytes]]) -> None:
        """The results for `ShareStateEvent`s, each once: request id, error code, and response of the same version.

        The error is the persister's final one. The body is not read if there is one. Without an answer,
        acknowledgements and fetches of the share partition wait; a result for a share partition that was dropped
        meanwhile is ignored.
        """
    @property
    def is_request_time_limited(self) -> bool:
        """Whether the time that handlers take counts for a quota of some client (KIP-124)."""
    def note_handler_time(self, handle: int, ns: int) -> None:
        """Record how long Python worked on a request; call it before `answer`, which may then throttle the client."""
    @property
    def is_measuring_requests(self) -> bool:
        """Whether requests that arrive now are measured: see `measure_requests`."""
    def note_error_codes(self, handle: int, counts: Sequence[tuple[int, int]]) -> None:
        """Count error codes, each with its number, of a response for ErrorsPerSec; call it before `answer`."""
    def publish(self, image: Image) -> list[tuple[bytes, bytes, int]]:
        """Serve this committed image: open partitions follow it, deleted ones are removed.

        Directory id, topic id and partition of replicas in another directory than the image says, for the controller.
        """
    def must_recover(self, topic_id: bytes, partition: int) -> bool:
        """Whether the first use of the partition would wait for a recovery: then `open_partition` it on a thread."""
    def open_partition(self, topic_id: bytes, partition: int) -> None: ...
    def open_the_rest(self, inter_broker_listener: str) -> None:
        """Open the remaining logs on disk in the background, and set strays aside.

        From now on the broker fetches the partitions that it follows, and proposes ISRs.
        """
    def alter_partition_request(self, broker_epoch: int) -> bytes | None:
        """The body of the next AlterPartition, version 3; None while one is in flight, or with nothing to propose."""
    def on_alter_partition_response(self, body: bytes | None) -> None:
        """Apply the response, version 3. After None the partitions of the request are in the next one again."""
    def set_settings(self, settings: Mapping[str, str]) -> None: ...
    def append(
        self,
        topic_id: bytes,
        batches: Sequence[
            tuple[int, int, tuple[int, int] | None, Sequence[tuple[bytes | None, bytes | None]]]
            | tuple[int, int, tuple[int, int] | None, Sequence[tuple[bytes | None, bytes | None]], tuple[int, int]]
        ],
        timestamp_ms: int,
        codec: int = 0,
    ) -> None:
        """Append batches with acks=all: partition, token, series, and (key, value) records.

        They are appended in order, and an "acked" event follows for each. A series is a leader epoch, in which alone
        its batches are appended, and a number. After one of its batches was refused, later ones are refused too, with
        OPERATION_NOT_ATTEMPTED.

        With id and epoch of a producer a batch is part of its transaction; the sequence is not checked. `codec` is a
        compression's id in Kafka: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. ValueError: another.
        """
    def append_markers(
        self,
        markers: Sequence[tuple[bytes, int, int, tuple[int, int] | None, int, int, bool, int, int]],
        timestamp_ms: int,
        *,
        needs_min_isr: bool = True,
    ) -> None:
        """Append transaction markers in order. An "acked" event follows for each, once all in-sync replicas have it.

        A marker: topic id, partition, token, series, producer id and epoch, whether it commits, coordinator epoch,
        transaction version. From version 2 on the epoch of an open transaction is refused: each transaction has its
        own.
        """
    def read_records(
        self, topic_id: bytes, partition: int, offset: int, max_bytes: int
    ) -> tuple[int, list[tuple[int, bytes | None, bytes | None, int, bool]]]:
        """Next offset, and (offset, key, value, producer id, is control) of records up to the log's end.

        Of a control record the key is its type as two bytes; the producer id is -1 outside transactions.
        """
    def load(self, topic_id: bytes, partition: int, read_bytes: int, *, latest_only: bool) -> LogLoad:
        """Begin to read a log from its start. `read_bytes` is the size of a read of the disk.

        `latest_only`: of records with the same key outside of transactions a part contains only the last one, as after
        a compaction; after the first part only if the key begins with the version 0 or 1, as those of offsets and
        transactional ids do.
        """
    def delete_records(self, topic_id: bytes, partition: int, offset: int) -> int:
        """Advance the log start offset; -1 means the high watermark. Returns the low watermark to wait for."""
    def low_watermark(self, topic_id: bytes, partition: int) -> int:
        """The smallest log start of all live replicas."""
    def high_watermark(self, topic_id: bytes, partition: int) -> int:
        """As ListOffsets answers a consumer. Raises OFFSET_NOT_AVAILABLE while a new leader may not know all of it."""
    def producers(self, topic_id: bytes, partition: int) -> list[tuple[int, int, int, int, int, int]]:
        """Producer id, epoch, last sequence, last timestamp in ms, coordinator epoch, open transaction's start."""
    def log_dirs(self) -> list[tuple[Path, bytes, str | None, bool, list[tuple[str, int, int, int, bool]]]]:
        """Path, directory id, why it is offline, whether it is cordoned, and its partitions, existing or planned.

        Of a partition: topic, index, bytes, the offsets by which it lags, and whether it is a copy that is to replace
        the log in another directory.
        """
    def alter_log_dir(self, topic: str, partition: int, directory_id: bytes) -> int:
        """Move a partition to a log directory, or cancel its move to another one; AlterReplicaLogDirs' error code.

        It may wait for the disk: call it on a thread.
        """
    def take_directories(self) -> list[tuple[bytes, bytes, int]]:
        """Directory id, topic id and partition of replicas, for the controller."""
    def on_directories_assigned(self, assigned: Sequence[tuple[bytes, bytes, int]]) -> None:
        """The controller has recorded these directories of replicas: moves that waited for it can complete."""
    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last clean shutdown, else -1."""
    def gauges(self) -> dict[str, int]:
        """The numbers of partitions that this broker has and leads, by state. It visits every partition."""
    def measure_requests(self, is_on: bool) -> None:
        """Measure the requests that arrive from now on, or stop; at first only their number is counted."""
    def request_metrics(self) -> dict[str, Distribution]:
        """Times and sizes of requests, by the names of Kafka's MBeans (kafka.network:type=RequestMetrics)."""
    def counters(self) -> dict[str, int]:
        """The counters of the network and the partitions' logs since the start, by name; see `klamm.node.counters`."""
    def stop_accepting(self) -> None: ...
    def shutdown(self, broker_epoch: int) -> None:
        """Close the network, then the logs, marked as cleanly shut down with that broker epoch."""
