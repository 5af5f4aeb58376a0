"""What a driver is plugged into: the store of quorum-state, the network, and the node that listens."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from klamm.protocol.named_tuple import NamedTuple
from klamm.raft.effects import Read, SendRequest
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import Response
from klamm.raft.replication.requests import FetchLease, LeasedFetch, StreamedFetches
from klamm.raft.voters.voter_set import ReplicaKey


class NotLeaderError(Exception):
    """The proposal was not made, or its fate is unknown: this replica does not lead, or stopped leading, the epoch."""


class RaftStoppedError(Exception):
    """The replica stopped, by a fault that the message names or because it was told to."""


class StateFailedError(Exception):
    """The state that a listener keeps can no longer be trusted; the message says why. The replica stops."""


class ElectionStore(Protocol):
    """Keeps quorum-state. Both methods may block; `write` has made the bytes durable when it returns."""

    def read(self) -> bytes | None:
        """The bytes written last, None when there never were any."""

    def write(self, data: bytes) -> None:
        """Replace the bytes, all or nothing. Raises OSError. Called in a thread of its own, one call at a time."""


class Transport(Protocol):
    """Takes requests to other replicas."""

    def send(self, request: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        """Send; call `on_done` once, later, on the loop's thread, with the answer or with None when there is none."""


class FetchFailedError(Exception):
    """A fetch that went on has ended without an answer: its way is gone, or, `is_of_disk`, a flush failed."""

    def __init__(self, text: str, *, is_of_disk: bool) -> None:
        super().__init__(text)
        self.is_of_disk = is_of_disk


FetchEnd = Response | FetchFailedError


class StreamProgress(NamedTuple):
    """What a fetch that goes on has come to since it was last asked, and how it ended, if it has."""

    fetched: StreamedFetches | None  # None: nothing was sent
    end: FetchEnd | None


class FetchStreams(Protocol):
    """Takes a fetch that may go on (`effects.SendRequest`), one at a time."""

    def begin(self, effect: SendRequest) -> bool:
        """Go on with that fetch from now on; False when there is no way to: then it is to be sent as others are."""

    @property
    def fd(self) -> int | None:
        """Readable when there is something to take; None before the first fetch."""

    def hold(self) -> None:
        """Return when it is between two steps; the next has to wait."""

    def release(self) -> None:
        """Let it go on."""

    def stop(self) -> None:
        """End it without a word: nothing is appended or sent any more. While it is held, or not."""

    def take(self) -> StreamProgress | None:
        """What is new; None when nothing is. An end is given once."""

    def close(self) -> None:
        """End it, with whatever it needs."""


class FetchAnswers(Protocol):
    """Answers plain fetches of the epoch that is led, as `RaftNode.fetch_lease` lets it (`driver.leased_fetches`)."""

    @property
    def fd(self) -> int:
        """Readable when more is committed than the core was told, or there is much to take."""

    @property
    def has_news(self) -> bool:
        """Whether that is so now."""

    def begin(self, by: FetchLease) -> None:
        """Answer by that, for those whom `know` names from now on."""

    def know(self, replica: ReplicaKey, *, counts: bool) -> None:
        """Take that replica's fetches, which count for the high watermark or do not."""

    def offer(self) -> None:
        """Voters may have all that the log has now: what is appended in one turn goes to them together."""

    def raise_high_watermark(self, offset: int) -> None:
        """The core knows so much to be committed."""

    def tell_voters(self) -> None:
        """What the core says about it has left: voters, who do nothing with it that anybody waits for, may know too."""

    def take(self) -> list[LeasedFetch]:
        """The fetches that were taken since it was last asked, in their order."""

    def end(self) -> list[LeasedFetch]:
        """Answer nothing any more when this returns: who waits comes as a request. What was taken and not told."""


class Listener(Protocol):
    """What the node learns, on the loop's thread. For a commit: on_commit, on_leader, then those who waited for it.

    An exception does not stop the replica, unless it is MetadataLogError, RaftStoppedError or StateFailedError: the
    call failed, is logged, and is repeated where it has to be (`klamm.raft.driver.delivery`).
    """

    def on_commit(self, high_watermark: int) -> None:
        """Everything below is committed: apply it. After an exception the call is repeated, perhaps for more."""

    def on_leader(self, epoch: int) -> None:
        """This replica leads `epoch`, and `on_commit` has told of all that was committed before.

        An exception resigns the epoch.
        """

    def on_not_leader(self, epoch: int) -> None:
        """This replica no longer leads `epoch`: drop what was speculated on it."""

    def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> Awaitable[None] | None:
        """Write the state committed below that offset as that snapshot; done when the log lists it.

        None: there is no state to write yet, and it is asked for again at the next commit.
        Called right after `on_commit` of that offset: take hold of the state now, not in what is awaited, or it may be
        a later one by then.
        """

    def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> Awaitable[None]:
        """Read the state from the snapshot that was received and checked, and keep it for `on_snapshot_installed`.

        Whatever it raises refuses the snapshot, which is fetched again then.
        """

    def on_snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log begins and ends with that snapshot: the state that was loaded takes the place of the one here.

        After an exception the call is repeated.
        """

    def on_fault(self, error: Exception) -> None:
        """The replica stopped for good."""


# Answers a peer: a response, and the range of the log or of a snapshot whose bytes it is to carry.
ReplyTo = Callable[[Response, Read | None], None]
