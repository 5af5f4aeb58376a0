"""Requests that a scenario sends, as any peer might: valid, late, or invalid."""

from collections.abc import Mapping

from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    UpdateVoterRequest,
    VoteRequest,
)
from klamm.raft.voters.voter_set import KRAFT_VERSION_MAX, KRAFT_VERSION_MIN, Endpoint, ReplicaKey


def request_of(name: str, options: Mapping[str, str]) -> Request:
    """The request of that API; `from` and `epoch` are always required. Raises KeyError for a missing option."""
    return _MAKERS[name](options)


def key_of(node_id: int, directory: str | None) -> ReplicaKey:
    """The key of a simulated replica: its directory id is that letter 16 times."""
    return ReplicaKey(node_id, None if directory is None else directory.encode() * 16)


def end_of(text: str) -> OffsetAndEpoch:
    """Parse `5@2`: a log end or a snapshot id."""
    offset, _, epoch = text.partition("@")
    return OffsetAndEpoch(int(offset), int(epoch))


def _asker(options: Mapping[str, str]) -> ReplicaKey:
    return key_of(int(options["from"]), options.get("directory"))


def _receiver(options: Mapping[str, str]) -> ReplicaKey | None:
    """`to=2-B`: the receiver in the request."""
    if "to" not in options:
        return None
    node_id, _, directory = options["to"].partition("-")
    return key_of(int(node_id), directory or None)


def _endpoints(options: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """`listener=OTHER`, `port=1`: the endpoint of the sender."""
    listener, port = options.get("listener", "CONTROLLER"), int(options.get("port", 9093))
    return (Endpoint(listener, f"node-{options['from']}", port),)


def _vote(options: Mapping[str, str]) -> Request:
    is_pre_vote, epoch = options.get("pre") == "yes", int(options["epoch"])
    end = end_of(options["log"])
    return VoteRequest(options.get("cluster"), _receiver(options), _asker(options), epoch, end, is_pre_vote)


def _begin_epoch(options: Mapping[str, str]) -> Request:
    leader_id, epoch = int(options["from"]), int(options["epoch"])
    endpoints = _endpoints(options) if "port" in options else ()
    return BeginQuorumEpochRequest(options.get("cluster"), _receiver(options), leader_id, epoch, endpoints)


def _end_epoch(options: Mapping[str, str]) -> Request:
    successors = tuple(ReplicaKey(int(node_id)) for node_id in options.get("successors", "").split(",") if node_id)
    return EndQuorumEpochRequest(options.get("cluster"), int(options["from"]), int(options["epoch"]), successors)


def _fetch(options: Mapping[str, str]) -> Request:
    offset, last_epoch = end_of(options["log"])
    return FetchRequest(
        cluster_id=options.get("cluster"),
        replica=_asker(options),
        epoch=int(options["epoch"]),
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        high_watermark=int(options.get("hw", -1)),
        max_wait_ms=int(options.get("wait", 0)),
        max_bytes=int(options.get("bytes", 1 << 20)),
    )


def _fetch_snapshot(options: Mapping[str, str]) -> Request:
    return FetchSnapshotRequest(
        cluster_id=options.get("cluster"),
        replica=_asker(options),
        epoch=int(options["epoch"]),
        snapshot_id=end_of(options["id"]),
        position=int(options.get("position", 0)),
        max_bytes=int(options.get("bytes", 50)),
    )


def _add_voter(options: Mapping[str, str]) -> Request:
    return AddVoterRequest(options.get("cluster"), _asker(options), _endpoints(options))


def _update_voter(options: Mapping[str, str]) -> Request:
    low, high = int(options.get("min", KRAFT_VERSION_MIN)), int(options.get("max", KRAFT_VERSION_MAX))
    epoch, endpoints = int(options["epoch"]), _endpoints(options)
    return UpdateVoterRequest(options.get("cluster"), epoch, _asker(options), endpoints, low, high)


_MAKERS = {
    "Vote": _vote,
    "BeginQuorumEpoch": _begin_epoch,
    "EndQuorumEpoch": _end_epoch,
    "Fetch": _fetch,
    "FetchSnapshot": _fetch_snapshot,
    "AddRaftVoter": _add_voter,
    "UpdateRaftVoter": _update_voter,
}
