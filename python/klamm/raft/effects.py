"""The effects of the core, which its driver carries out in order.

`after` names the newest `PersistElection` ticket that must be durable before the effect may leave the node. An effect
without it waits for nothing. Effects that change the log are carried out at once. The driver makes the log durable by
itself: whenever `flushed_offset < end_offset` and no flush runs, it starts one and reports `events.Flushed`. For a
replica that never votes it starts the flush after a delay.

Effects and messages are `Value`s, which cost a start nothing before their first object.
"""

from __future__ import annotations

from klamm.protocol.value import Value
from klamm.raft.election.election_state import ElectionState
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import Request, Response
from klamm.raft.voters.voter_set import Endpoint, VotersInLog


class PersistElection(Value):
    """Write quorum-state, then report `events.Persisted(ticket)`. A newer ticket replaces one not yet begun."""

    ticket: int
    state: ElectionState
    kraft_version: int
    voter_ids: tuple[int, ...]


class AppendControl(Value):
    """Append control records, each (type, encoded value), in one batch; the voters among them act at the next tick."""

    epoch: int
    records: tuple[tuple[int, bytes], ...]


class AppendFetched(Value):
    """Append the leader's batches verbatim, except those of an epoch above `max_epoch`, as Kafka does since 4.1."""

    batches: bytes
    max_epoch: int


class TruncateLog(Value):
    """Remove every record at or above `offset`."""

    offset: int


class AppendSnapshotSlice(Value):
    """Store a slice of a snapshot from the leader. Position 0 discards earlier slices."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes


class CheckSnapshot(Value):
    """Check the received snapshot and make it durable, then report `events.SnapshotChecked` for `attempt`."""

    snapshot_id: OffsetAndEpoch
    attempt: int


class InstallSnapshot(Value):
    """Make the checked snapshot the newest, replace the log by it, and load the state from it."""

    snapshot_id: OffsetAndEpoch


class DropSnapshot(Value):
    """Drop the snapshot that was being received."""


class SendRequest(Value):
    """Send to a node; report `events.ResponseReceived` or `events.RequestFailed` with the same correlation id.

    A fetch that `may_stream` may be followed by others without the core, as long as each answer only brings records or
    a higher high watermark: they are appended, and flushed by a voter, before the next fetch leaves.
    `RaftNode.on_streamed_fetches` notifies the core of them before any other event. Any other answer ends the stream
    and is reported as the answer to this request.
    """

    to: int
    endpoints: tuple[Endpoint, ...]
    correlation_id: int
    request: Request
    after: int
    may_stream: bool = False


class ReadRange(Value):
    """The batches from `offset` on, at least one, then as many as fit: they become the response's records."""

    offset: int
    max_bytes: int


class ReadSlice(Value):
    """The bytes of a finished snapshot from `position` on, `max_bytes` at most: the response's unaligned records."""

    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


# Data that is added to a response by the owner of the bytes: see `reading.with_bytes`.
Read = ReadRange | ReadSlice


class Reply(Value):
    """Answer the request; the owner of the bytes of a range adds them."""

    request_id: int
    response: Response
    after: int
    read: Read | None = None


class HighWatermarkAdvanced(Value):
    """Everything below `offset` is committed."""

    offset: int


class VotersChanged(Value):
    """The voter set or the kraft.version has changed: its record was appended or truncated, committed or not."""

    voters: VotersInLog


class LeaderChanged(Value):
    """A leader (or none) is known for an epoch."""

    leader_id: int | None
    epoch: int


class BecameLeader(Value):
    """This replica leads `epoch` and all that earlier leaders committed is below the high watermark."""

    epoch: int


class LostLeadership(Value):
    """This replica no longer leads `epoch`: the outcome of its uncommitted records is unknown."""

    epoch: int


class ShutdownCompleted(Value):
    """The replica has handed over as far as it could: the driver may stop."""


Effect = (
    PersistElection
    | AppendControl
    | AppendFetched
    | TruncateLog
    | AppendSnapshotSlice
    | CheckSnapshot
    | InstallSnapshot
    | DropSnapshot
    | SendRequest
    | Reply
    | HighWatermarkAdvanced
    | VotersChanged
    | LeaderChanged
    | BecameLeader
    | LostLeadership
    | ShutdownCompleted
)
