"""Fetches the metadata log into a temporary folder, for reading it on a machine without a node's files.

It fetches as an observer without an id, for which a leader keeps no state. Records before the leader's latest snapshot
are not available.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from klamm.admin.client import check
from klamm.admin.leadership import FETCH_VERSION_MAX, leader_and_epoch
from klamm.admin.quorum import CONTROLLERS
from klamm.client import BrokerError, ClientError, SecurityError, UnreachableError
from klamm.client.connection import Address, Connection, parse_bootstrap
from klamm.formats.directories import METADATA_FOLDER
from klamm.metadata.errors import HistoryError
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from klamm.protocol.messages.quorum_messages import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchTopic,
    SnapshotId,
    SnapshotPartition,
    SnapshotPartitionData,
    SnapshotTopic,
)
from klamm.records import batches

_BYTES: Final = 8 << 20
_TIMEOUT_S: Final = 30
_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.5
"""Between attempts during an election; ten seconds in all are enough for any election that succeeds."""
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.SNAPSHOT_NOT_FOUND,
    }
)
"""Errors of a change of leader, or of a snapshot that was replaced by a newer one while it was copied."""


class Mirror:
    """A copy of the leader's log up to the last `update`. Close it, or use it in a `with`."""

    def __init__(self, bootstrap: str, config: Mapping[str, str] | None = None) -> None:
        """`bootstrap`: `host:port,...` of controllers. `config`: keys of Kafka's clients. Raises ClientError."""
        self._addresses = parse_bootstrap(bootstrap)
        self._config = dict(config or {})
        self._connection: Connection | None = None
        self._epoch, self._has_fetched = -1, False
        self._is_read = False
        """Whether a caller may have read the copied records."""
        self._cuts = 0
        self._offset, self._last_epoch = 0, 0
        self.directory: Final = Path(tempfile.mkdtemp(prefix="klamm-metadata-"))
        """The directory for `klamm.metadata.History`."""
        self._folder = self.directory / METADATA_FOLDER
        self._folder.mkdir()
        self._segment: Path | None = None

    def update(self) -> None:
        """Fetch new records from the current leader. Raises ClientError, HistoryError."""
        while self._fetch_some_from_anyone():
            pass
        self._is_read = True

    def close(self) -> None:
        """Remove the copy."""
        if self._connection is not None:
            self._connection.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fetch_some_from_anyone(self) -> bool:
        """Whether there were new records. The first fetch does not wait for a leader: the address may be wrong."""
        for _ in range(_ATTEMPTS):
            try:
                return self._fetch_some()
            except (BrokerError, UnreachableError) as error:
                if not self._has_fetched or (isinstance(error, BrokerError) and error.error_code not in _PASSING):
                    raise
                last = error
                self._forget_leader()
                time.sleep(_PAUSE_S)
        raise UnreachableError(
            f"the metadata log cannot be copied from offset {self._offset} on: {_ATTEMPTS} attempts failed in a row, "
            f"the last of them with: {last}"
        )

    def _fetch_some(self) -> bool:
        """Whether the leader had new records."""
        found = self._ask(self._leader())
        self._has_fetched = True
        if found.snapshot_id.end_offset >= 0:
            self._take_snapshot(found.snapshot_id)
            return True
        if found.diverging_epoch.epoch >= 0:
            self._begin_again()
            return True
        if not found.records:
            return False
        self._append(found.records)
        return True

    def _begin_again(self) -> None:
        """Restart the copy: a new leader has truncated uncommitted records."""
        self._cuts += 1
        if self._is_read or self._cuts == _ATTEMPTS:
            raise HistoryError(f"the quorum's log was truncated below offset {self._offset}, already read: start again")
        for file in self._folder.iterdir():
            file.unlink()
        self._offset, self._last_epoch, self._segment = 0, 0, None

    def _append(self, records: bytes) -> None:
        found = batches(records)
        if not found:
            raise HistoryError(f"the batch after offset {self._offset} is larger than {_BYTES} bytes")
        if self._segment is None:
            self._segment = self._folder / f"{found[0].base_offset:020}.log"
        with self._segment.open("ab") as file:
            file.writelines(map(bytes, found))
        self._offset, self._last_epoch = found[-1].last_offset + 1, found[-1].leader_epoch

    def _take_snapshot(self, wanted: SnapshotId) -> None:
        """Copy a snapshot from one leader only: another leader's has the same records, but may have other bytes."""
        name = f"{wanted.end_offset:020}-{wanted.epoch:010}.checkpoint"
        part = self._folder / f"{name}.part"
        leader = self._leader()
        try:
            with part.open("wb") as file:
                position, size = 0, 1
                while position < size:
                    found = self._slice(leader, wanted, position)
                    size = found.size
                    if not found.unaligned_records:
                        raise HistoryError(f"the snapshot {name} ends at byte {position} of {size}")
                    file.write(found.unaligned_records)
                    position += len(found.unaligned_records)
            part.rename(self._folder / name)
        finally:
            part.unlink(missing_ok=True)
        self._offset, self._last_epoch, self._segment = wanted.end_offset, wanted.epoch, None

    def _slice(self, leader: Connection, wanted: SnapshotId, position: int) -> SnapshotPartitionData:
        """Bytes of a snapshot from a position on, with its total size."""
        partition = SnapshotPartition(0, self._epoch, wanted, position)
        request = FetchSnapshotRequest((SnapshotTopic(METADATA_TOPIC, (partition,)),), max_bytes=_BYTES)
        answer = leader.ask(request, FetchSnapshotResponse, 1)
        check(answer.error_code, "the snapshot cannot be fetched")
        found = answer.topics[0].partitions[0]
        check(found.error_code, f"the snapshot of offset {wanted.end_offset} cannot be fetched")
        return found

    def _ask(self, leader: Connection) -> FetchPartitionData:
        partition = FetchPartition(0, self._offset, _BYTES, self._epoch, self._last_epoch)
        request = FetchRequest(0, (FetchTopic((partition,), METADATA_TOPIC_ID, METADATA_TOPIC),), max_bytes=_BYTES)
        answer = leader.ask(request, FetchResponse, FETCH_VERSION_MAX)
        check(answer.error_code, "the metadata log cannot be fetched")
        found = answer.responses[0].partitions[0]
        check(found.error_code, "the metadata log cannot be fetched")
        return found

    # The leader

    def _leader(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection, self._epoch = self._find_leader()
        return self._connection

    def _forget_leader(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _find_leader(self) -> tuple[Connection, int]:
        reasons = []
        for address in list(self._addresses):
            try:
                with Connection(*address, _TIMEOUT_S, self._config) as connection:
                    controllers = _controllers(connection)
                    leader_id, epoch = leader_and_epoch(connection)
                # Keep the others, because the named one may fail next.
                self._addresses += [one for one in controllers.values() if one not in self._addresses]
                if leader_id in controllers and epoch is not None:
                    return Connection(*controllers[leader_id], _TIMEOUT_S, self._config), epoch
                reasons.append(f"{connection.address} knows no leader: `klamm quorum doctor` shows why")
            except SecurityError:
                raise
            except ClientError as error:
                reasons.append(str(error))
        raise UnreachableError("\n".join(reasons))


def _controllers(connection: Connection) -> dict[int, Address]:
    """The addresses of the controllers that this one knows, by node id."""
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    cluster = connection.ask(request, DescribeClusterResponse, 1)
    check(cluster.error_code, f"{connection.address} is not a controller", cluster.error_message)
    return {one.broker_id: (one.host, one.port) for one in cluster.brokers}
