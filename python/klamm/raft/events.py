"""The events of a replica as values, to record, replay or generate them. A driver calls the methods directly."""

from typing import NamedTuple, assert_never

from klamm.raft.effects import Effect
from klamm.raft.election.election_state import ElectionState
from klamm.raft.messages import Request, Response
from klamm.raft.node import RaftNode


class Started(NamedTuple):
    """The first event: what quorum-state held, or None when there was no file."""

    stored: ElectionState | None


class Ticked(NamedTuple):
    """The clock reached `deadline_ms`."""


class RequestReceived(NamedTuple):
    """A peer sent a request; the `Reply` has the same id."""

    request_id: int
    request: Request


class ResponseReceived(NamedTuple):
    """A peer sent a response."""

    correlation_id: int
    response: Response


class RequestFailed(NamedTuple):
    """There will be no response: the connection was closed, or could not be opened."""

    correlation_id: int


class PeerRefused(NamedTuple):
    """A node refused a connection, whether or not there was one before."""

    node_id: int


class PeerCrashed(NamedTuple):
    """A node closed its connection and refused a new one: its process has ended, unless this is a false alarm."""

    node_id: int


class Persisted(NamedTuple):
    """quorum-state holds what this ticket (or a newer one) carried."""

    ticket: int


class Appended(NamedTuple):
    """The leader's driver appended proposals to the log."""


class Flushed(NamedTuple):
    """The log's `flushed_offset` moved."""


class SnapshotChecked(NamedTuple):
    """The snapshot of `CheckSnapshot` is valid and durable, or is dropped because it is not."""

    attempt: int
    is_valid: bool


class ResignRequested(NamedTuple):
    """The controller gives up `epoch`, which it led (a fault while it replayed its own records, say)."""

    epoch: int


class KraftUpgradeRequested(NamedTuple):
    """The controller finalizes kraft.version 1."""


class ShutdownRequested(NamedTuple):
    """The node will stop: hand over if this replica leads."""


Event = (
    Started
    | Ticked
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | PeerCrashed
    | PeerRefused
    | Persisted
    | Appended
    | Flushed
    | SnapshotChecked
    | ResignRequested
    | KraftUpgradeRequested
    | ShutdownRequested
)


def happen(node: RaftNode, now_ms: int, event: Event) -> list[Effect]:
    """Pass an event to a replica."""
    match event:
        case Started(stored):
            return node.on_start(now_ms, stored)
        case Ticked():
            return node.on_tick(now_ms)
        case RequestReceived(request_id, request):
            return node.on_request(now_ms, request_id, request)
        case ResponseReceived(correlation_id, response):
            return node.on_response(now_ms, correlation_id, response)
        case RequestFailed(correlation_id):
            return node.on_request_failed(now_ms, correlation_id)
        case PeerCrashed(node_id):
            return node.on_peer_crashed(now_ms, node_id)
        case PeerRefused(node_id):
            return node.on_peer_refused(now_ms, node_id)
        case Persisted(ticket):
            return node.on_persisted(now_ms, ticket)
        case Appended():
            return node.on_append(now_ms)
        case Flushed():
            return node.on_flushed(now_ms)
        case SnapshotChecked(attempt, is_valid):
            return node.on_snapshot_checked(now_ms, attempt, is_valid)
        case ResignRequested(epoch):
            return node.on_resign(now_ms, epoch)
        case KraftUpgradeRequested():
            return node.on_kraft_upgrade(now_ms)
        case ShutdownRequested():
            return node.on_shutdown(now_ms)
        case _:
            assert_never(event)
