"""Brokers of the simulator: the engine's replicas, logs and fetchers, without threads, sockets and clock.

Every method is a step. The caller decides their order and their times, and equal steps have equal results.
RuntimeError: the step failed, as no step does in the product without a failure of the disk.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import final

from klamm._engine.metadata import Image
from klamm._engine.node import LogLoad

Key = tuple[bytes, int]  # topic id and partition; in the stub only
InSession = tuple[Key, int, int, int, int, int]
"""A partition of a fetch session: leader epoch, fetch offset, last fetched epoch, log start, high watermark."""

@final
class ReplicaGauges:
    """The state of a replica."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def isr(self) -> list[int]:
        """The committed ISR; empty unless it leads."""
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def epochs(self) -> list[tuple[int, int]]:
        """Leader epochs of the log with their start offsets."""

@final
class SimulatedBroker:
    """A broker, stopped at first."""

    def __new__(
        cls,
        node_id: int,
        directory_ids: Sequence[bytes],
        folder: str | PathLike[str],
        settings: Mapping[str, str],
        without: str | None = None,
    ) -> SimulatedBroker:
        """Its disk is below `folder`, empty, with a log directory for each id. Raises ValueError.

        `without`: the guard that it lacks, of `guards`.
        """

    @staticmethod
    def guards() -> list[str]:
        """The guards that a broker can lack."""
    # Lives
    def start(self, now_ms: int) -> int:
        """Begin a life; the broker epoch of a clean shutdown before it, otherwise -1."""

    def kill(self) -> None:
        """End the process: what it wrote stays."""

    def cut_power(self, seed: int) -> None:
        """End the process, if it runs; of what was not synced, `seed` decides what survives."""

    def clean(self, now_ms: int) -> list[Key]:
        """Clean the compacted logs that are due; the partitions whose logs have changed."""

    def cut_power_while_cleaning(self, seed: int, now_ms: int) -> None:
        """The same, but the power is cut in between, when `seed` says."""

    def shut_down(self, broker_epoch: int) -> None:
        """End cleanly."""

    def open_the_rest(self, now_ms: int) -> None:
        """The image says what this life leads: open the logs on disk, fetch, and propose ISRs from now on."""

    def publish(self, image: Image, now_ms: int) -> list[tuple[bytes, Key]]:
        """A newer `Image`. Returns the directories that it does not have of this broker's replicas."""
    # Clients
    def produce(self, partition: Key, batches: bytes, acks: int, ticket: int, now_ms: int) -> tuple[int, int]:
        """Error code and end offset. The result of acks -1 follows by `take_due`."""

    def begin_verification(
        self, partition: Key, producer: tuple[int, int, int], is_adding: bool, ticket: int, now_ms: int
    ) -> tuple[int, bool]:
        """A transactional batch of a producer (id, epoch, sequence): error code, and whether its coordinator is asked.

        It is produced afterwards, with the same `ticket`.
        """

    def append_marker(
        self,
        partition: Key,
        marker: tuple[int, int, bool, int, int],
        needs_min_isr: bool,
        series: tuple[int, int] | None,
        ticket: int,
        now_ms: int,
    ) -> tuple[int, int]:
        """Error code and end offset; the result follows as that of acks -1.

        A marker: producer id and epoch, whether it commits, coordinator epoch, transaction version. A group coordinator
        needs no min ISR for it.
        """
    # Coordinators
    def append_own(
        self, partition: Key, batch: bytes, series: tuple[int, int] | None, ticket: int, now_ms: int
    ) -> tuple[int, int]:
        """A coordinator's batch: error code and end offset; the result follows as that of acks -1."""

    def load(
        self,
        partition: Key,
        read_bytes: int,
        part_bytes: int,
        latest_only: bool,
        partition_error: Callable[[int, str | None], Exception],
    ) -> LogLoad:
        """As `Engine.load`; a part ends with the read after which it holds `part_bytes`."""

    def consume(self, partition: Key, offset: int, leader_epoch: int, now_ms: int) -> tuple[int, int, bytes]:
        """Error code, high watermark and batches below it."""

    def consume_committed(
        self, partition: Key, offset: int, now_ms: int
    ) -> tuple[int, int, bytes, list[tuple[int, int]]]:
        """Error code, last stable offset, batches below it; producer id and first offset of aborted transactions."""
    # What has become possible
    def take_due(self, now_ms: int) -> tuple[bool, list[int], list[int], list[int], list[tuple[int, int]]]:
        """Begin the flushes that are due.

        Returns whether `follow_roles` is due, all leaders that this broker fetches from, the waiting fetches that
        should look again, the flushes that have begun, and ticket and error code of each append whose result is known.
        """

    def follow_roles(self, now_ms: int) -> list[int]:
        """Give partitions to the fetchers of their leaders; the leaders whose request in flight is to be given up."""

    def end_offset(self, partition: Key, leader_epoch: int, now_ms: int) -> tuple[int, int]:
        """Error code, and the end offset that consumers get."""

    def delete_records(self, partition: Key, offset: int, now_ms: int) -> tuple[int, int]:
        """Error code, and what `low_watermark` has to reach."""

    def low_watermark(self, partition: Key) -> tuple[int, int]:
        """Error code, and the smallest log start of the leader and of all others that are alive."""
    # The disk
    def end_flush(self, number: int, now_ms: int) -> None:
        """What was written before that flush began is durable."""

    def checkpoint(self) -> None:
        """Write the checkpoints of all log directories."""

    def fail_dir(self, dir: int) -> None:
        """A log directory fails, until the next life."""

    def flip_bit(self, seed: int, ends: Mapping[str, int]) -> str | None:
        """While it is stopped: change a bit in a batch of a complete segment.

        `ends`: by partition ("t-0"), the offset at which that batch ends at most. The partition; None: there is none.
        """
    def move_replica(self, topic: str, index: int, dir: int, now_ms: int) -> int:
        """Begin to move a replica to another log directory; the error code."""

    def step_moves(self, now_ms: int) -> list[tuple[bytes, Key]]:
        """The next step of each move; the directories of replicas to tell the controller."""

    def on_directories_assigned(self, assigned: Sequence[tuple[bytes, Key]]) -> None:
        """The controller has these directories of replicas."""

    def damage(self) -> list[tuple[Key, list[tuple[int, int]], list[int]]]:
        """The damage that was found: where to fetch it, its end, and other replicas in sync, the leader first."""

    def repair(self, partition: Key, fetch_offset: int, batches: bytes) -> bool:
        """Replace damage by what another replica returned from that offset on; False if it does not fit."""

    def retain(self, now_ms: int) -> None:
        """Remove what retention allows."""
    # The ISR
    def check_lag(self, now_ms: int) -> None:
        """Let leaders propose to remove replicas that lag."""

    def alter_partition_request(self, broker_epoch: int) -> bytes | None:
        """The body of the next AlterPartition; None while one is in flight or nothing is proposed."""

    def on_alter_partition_response(self, body: bytes | None) -> None:
        """The body of its answer; None: there was none."""
    # Following
    def fetch_request(self, leader: int, now_ms: int) -> bytes | None:
        """The body of the next Fetch; None while a flush is awaited, or when nothing is to be fetched now."""

    def in_session(self, leader: int) -> list[InSession]:
        """The expected content of the leader's session after that request."""

    def fetch_due_ms(self, leader: int) -> int | None:
        """When a partition is due that was delayed after an error."""

    def on_fetch_response(self, leader: int, body: bytes, now_ms: int) -> list[tuple[Key, int]]:
        """Append and truncate; the partitions, with leader epochs, whose offsets are to be asked for."""

    def on_fetch_failed(self, leader: int) -> None:
        """The request was not answered."""

    def on_leader_offsets(self, leader: int, partition: Key, found: tuple[int, int] | None, now_ms: int) -> None:
        """Where the leader's log begins and ends; None: it did not say."""
    # Leading
    def answer_fetch(self, number: int, body: bytes, now_ms: int) -> tuple[bytes | None, list[InSession] | None]:
        """The body of the answer, and what the session of the fetch contains.

        None: the fetch waits under this number; it uses no session, or was refused.
        """

    def answer(
        self, number: int, api_key: int, version: int, connection_id: int, body: bytes, now_ms: int
    ) -> bytes | None:
        """The same for a ShareFetch or a ShareAcknowledge of a client.

        `max_wait_ms` in the body is real time, and must be long.
        """

    def look_again(self, number: int, is_late: bool, now_ms: int) -> bytes | None:
        """The body of the answer; None: it waits on, or was answered. One that is late is answered in any case."""

    def leader_offsets(self, partition: Key, leader_epoch: int) -> tuple[int, int] | None:
        """Where this leader's log begins and ends; None: it does not lead in this epoch."""
    # Share groups
    def disconnect(self, connection_id: int, now_ms: int) -> None:
        """A client's connection was closed: the share session that it opened ends."""

    def expire_locks(self, now_ms: int) -> None:
        """End the acquisition locks that are due."""

    def take_share_calls(self) -> list[tuple[int, int, bytes]]:
        """Request ids, API keys and bodies of the calls of share coordinators that are due."""

    def share_state_answered(self, request_id: int, code: int, body: bytes, now_ms: int) -> None:
        """A call has this result."""

    def share_gauges(self, group: str, partition: Key) -> tuple[int, int, int, int] | None:
        """Of a share partition: a number that another load of it has not, its leader epoch, start and next offset.

        None: it is not loaded.
        """
    # Checks
    def take_changed(self) -> list[tuple[Key, ReplicaGauges | None]]:
        """The replicas whose state has changed since the last call; None for one that is not open any more."""

    def batches(self, partition: Key, offset: int) -> bytes:
        """Complete batches from `offset` on, committed or not."""
