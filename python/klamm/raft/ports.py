"""The interfaces of a driver: the store of quorum-state, the network, and the node that listens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from klamm.protocol.value import Value
from klamm.raft.effects import Read, SendRequest
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import Response
from klamm.raft.replication.requests import FetchLease, LeasedFetch, StreamedFetches
from klamm.raft.voters.voter_set import ReplicaKey


class NotLeaderError(Exception):
    """The proposal was not made, or its outcome is unknown: this replica does not lead the epoch, or stopped."""


class RaftStoppedError(Exception):
    """The replica stopped, because of the fault that the message names or on request."""


class StateFailedError(Exception):
    """The state that a listener keeps can no longer be trusted; the message says why. The replica stops."""


class ElectionStore(Protocol):
    """Stores quorum-state. Both methods may block; `write` returns once the bytes are durable."""

    def read(self) -> bytes | None:
        """The bytes written last; None if there were none."""

    def write(self, data: bytes) -> None:
        """Replace the bytes, all or nothing. Raises OSError. Called in a thread of its own, one call at a time."""


class Transport(Protocol):
    """Sends requests to other replicas."""

    def send(self, request: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        """Send the request. `on_done` is called once, later, on the loop's thread, with the response or None."""


class FetchFailedError(Exception):
    """A streamed fetch ended without a response: its connection closed or, with `is_of_disk`, a flush failed."""

    def __init__(self, text: str, *, is_of_disk: bool) -> None:
        super().__init__(text)
        self.is_of_disk = is_of_disk


FetchEnd = Response | FetchFailedError


class StreamProgress(Value):
    """The progress of a streamed fetch since the last `take`, and its end, if it has ended."""

    fetched: StreamedFetches | None  # None: nothing was sent
    end: FetchEnd | None


class FetchStreams(Protocol):
    """Runs streamed fetches (`effects.SendRequest`), one at a time."""

    def begin(self, effect: SendRequest) -> bool:
        """Start streaming with that fetch. False when that is impossible: it must then be sent like other requests."""

    @property
    def fd(self) -> int | None:
        """Readable when `take` has something to return; None before the first fetch."""

    def hold(self) -> None:
        """Return when the stream is between two steps; the next step waits until `release`."""

    def release(self) -> None:
        """Let the stream continue after `hold`."""

    def stop(self) -> None:
        """End the stream without a report: it appends and sends nothing more. Allowed whether or not it is held."""

    def take(self) -> StreamProgress | None:
        """The progress since the last call, or None. An end is returned once."""

    def close(self) -> None:
        """End the stream and release its resources."""


class FetchAnswers(Protocol):
    """Answers plain fetches in the leader's epoch, within the lease that `RaftNode.fetch_lease` grants."""

    @property
    def fd(self) -> int:
        """Readable when more is committed than was reported to the core, or when many fetches wait for `take`."""

    @property
    def has_news(self) -> bool:
        """Whether `fd` is readable now."""

    def begin(self, by: FetchLease) -> None:
        """Answer fetches within that lease, for the replicas that `add_replica` adds from now on."""

    def add_replica(self, replica: ReplicaKey, *, counts: bool) -> None:
        """Answer that replica's fetches; `counts`: they count for the high watermark."""

    def offer(self) -> None:
        """Make the log up to its current end available to voters, so that all appends of one turn go out together."""

    def raise_high_watermark(self, offset: int) -> None:
        """The core's high watermark is now `offset`."""

    def notify_voters(self) -> None:
        """Notify the voters of the high watermark too. They come last, because no caller waits for voters."""

    def take(self) -> list[LeasedFetch]:
        """The fetches that were answered since the last call, in order."""

    def end(self) -> list[LeasedFetch]:
        """Stop answering before this returns; parked fetches arrive as requests. Returns the fetches not yet taken."""


class Listener(Protocol):
    """The node's callbacks, on the loop's thread. For a commit: on_commit, on_leader, then the waiting proposals.

    An exception does not stop the replica, unless it is MetadataLogError, RaftStoppedError or StateFailedError: the
    call failed, is logged, and is repeated where it has to be (`klamm.raft.driver.delivery`).
    """

    def on_commit(self, high_watermark: int) -> None:
        """Everything below is committed: apply it. After an exception the call is repeated, perhaps for more."""

    def on_leader(self, epoch: int) -> None:
        """This replica leads `epoch`, and `on_commit` has delivered all that was committed before.

        An exception resigns the epoch.
        """

    def on_not_leader(self, epoch: int) -> None:
        """This replica no longer leads `epoch`: drop speculative state of it."""

    def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> Awaitable[None] | None:
        """Write the state committed below that offset as that snapshot; done when the log lists it.

        None: there is no state to write yet, and it is requested again at the next commit. Called right after
        `on_commit` of that offset: capture the state in the call, not in the awaited part, or it may be a later one by
        then.
        """

    def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> Awaitable[None]:
        """Read the state from the snapshot that was received and checked, and keep it for `on_snapshot_installed`.

        Whatever it raises refuses the snapshot, which is fetched again then.
        """

    def on_snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log was replaced by that snapshot: the loaded state replaces the current one.

        After an exception the call is repeated.
        """

    def on_fault(self, error: Exception) -> None:
        """The replica stopped permanently."""


# Sends a response to a peer: the message, and the range of the log or of a snapshot whose bytes it contains.
ReplyTo = Callable[[Response, Read | None], None]
