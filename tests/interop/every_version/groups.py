"""Classic groups and their offsets."""

from __future__ import annotations

from typing import Any

from klamm.protocol.api_key import ApiKey
from tests.interop.peers import VERSIONS, Both, Peer, versions


def find_coordinator(both: Both) -> None:
    """Wait until both have a coordinator for groups that has loaded the only partition of its log."""
    both.until(10, 3, {"key": "g", "key_type": 0})
    both.until(9, 5, {"group_id": "g", "topics": None})


def groups(both: Both) -> None:
    """The APIs of classic groups: an unknown group, a live one, and commits by an admin client."""
    find_coordinator(both)
    for kind, key in ((0, "g"), (0, ""), (2, "x"), (3, "x")):
        both.every(ApiKey.FIND_COORDINATOR, f"type {kind} {key!r}", key=key, coordinator_keys=[key, "h"], key_type=kind)
    for version in versions(ApiKey.JOIN_GROUP):
        one_life(both, version, f"group{version}")
    both.every(ApiKey.LIST_GROUPS, "all", states_filter=[], types_filter=[])
    for state in ("Stable", "empty", "Dead", "Nope"):
        both.every(ApiKey.LIST_GROUPS, f"state {state}", since=4, states_filter=[state], types_filter=[])
    for kind in ("classic", "Consumer", "nope"):
        both.every(ApiKey.LIST_GROUPS, f"type {kind}", since=5, states_filter=[], types_filter=[kind])
    for version in versions(ApiKey.OFFSET_COMMIT):
        commit(both, version, "without members", f"admin{version}", "", -1)
    for asked, name, indexes in (("some", "c2", [0, 1, 5]), ("of an unknown topic", "nope", [0])):
        both.every(
            ApiKey.OFFSET_FETCH, asked, own=lambda version, name=name, at=indexes: fetched(version, "admin9", name, at)
        )
    both.every(ApiKey.OFFSET_FETCH, "of no group", own=lambda version: fetched(version, "nobody", "c2", [0]))
    both.every(ApiKey.OFFSET_FETCH, "all", since=2, own=lambda version: fetched(version, "admin9", None, []))
    gone = [{"name": "c2", "partitions": [{"partition_index": 0}, {"partition_index": 7}]}]
    for name in ("admin8", "nobody", "", "group9"):
        both.every(ApiKey.OFFSET_DELETE, f"of {name!r}", group_id=name, topics=gone)
    for version in versions(ApiKey.DELETE_GROUPS):
        both.ask(ApiKey.DELETE_GROUPS, version, "several", groups_names=[f"admin{version + 2}", "group9", "nobody", ""])


def fetched(version: int, group: str, topic: str | None, indexes: list[int]) -> dict[str, Any]:
    def topics_of(peer: Peer) -> list[dict[str, Any]] | None:
        if topic is None:
            return None
        return [{"name": topic, "topic_id": peer.topic(topic), "partition_indexes": indexes}]

    if version < 8:
        return {"group_id": group, "topics": topics_of}
    return {"groups": lambda peer: [{"group_id": group, "topics": topics_of(peer), "member_epoch": -1}]}


def commit(  # noqa: PLR0917
    both: Both, version: int, label: str, group: str, member: Any, generation: int
) -> None:
    def topics_of(peer: Peer) -> list[dict[str, Any]]:
        offset = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m", "committed_leader_epoch": -1}
        return [{"name": "c2", "topic_id": peer.topic("c2"), "partitions": [offset]}]

    both.ask(
        8,
        version,
        f"commit {label}",
        group_id=group,
        member_id=member,
        generation_id=generation,
        generation_id_or_member_epoch=generation,
        retention_time_ms=-1,
        topics=topics_of,
    )


def one_life(both: Both, version: int, group: str) -> None:
    """A member joins, syncs, sends heartbeats, commits and leaves, with about the same version of each API."""
    protocols = [{"name": "range", "metadata": b"\0\0"}]
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 5_000}
    joining = {"group_id": group, "member_id": "", "protocol_type": "consumer", "protocols": protocols, **times}
    for label, more in (
        ("too short", {"session_timeout_ms": 1}),
        ("too long", {"session_timeout_ms": 10**8}),
        ("no protocols", {"protocols": []}),
        ("no type", {"protocol_type": ""}),
        ("no group", {"group_id": ""}),
        ("unknown member", {"member_id": "x"}),
    ):
        both.ask(ApiKey.JOIN_GROUP, version, f"join, {label}", **joining | more)
    members = {}

    def member(peer: Peer) -> Any:
        return members[peer]

    answer = both.ask(ApiKey.JOIN_GROUP, version, "join", **joining)
    members |= {peer: peer.last["member_id"] for peer in (both.kafka, both.klamm)}
    if answer["error_code"] == "MEMBER_ID_REQUIRED":
        answer = both.ask(ApiKey.JOIN_GROUP, version, "join with an id", **joining | {"member_id": member})
    generation = answer["generation_id"]
    beat = {"group_id": group, "generation_id": generation}
    sync = beat | {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    low = {
        key: min(version, VERSIONS[key][1])
        for key in (ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS)
    }
    both.ask(ApiKey.SYNC_GROUP, low[ApiKey.SYNC_GROUP], "sync, unknown member", **sync, member_id="x")
    both.ask(
        ApiKey.SYNC_GROUP,
        low[ApiKey.SYNC_GROUP],
        "sync, another generation",
        **sync | {"generation_id": 99},
        member_id=member,
    )
    both.ask(
        ApiKey.DESCRIBE_GROUPS,
        low[ApiKey.DESCRIBE_GROUPS],
        "describe before the sync",
        groups=[group],
        include_authorized_operations=True,
    )
    assigned_to = lambda peer: [{"member_id": members[peer], "assignment": b"abc"}]  # noqa: E731
    both.ask(ApiKey.SYNC_GROUP, low[ApiKey.SYNC_GROUP], "sync", **sync | {"assignments": assigned_to}, member_id=member)
    both.ask(
        ApiKey.DESCRIBE_GROUPS,
        low[ApiKey.DESCRIBE_GROUPS],
        "describe",
        groups=[group, "nobody", ""],
        include_authorized_operations=True,
    )
    both.ask(ApiKey.HEARTBEAT, low[ApiKey.HEARTBEAT], "beat", **beat, member_id=member)
    both.ask(
        ApiKey.HEARTBEAT,
        low[ApiKey.HEARTBEAT],
        "beat, another generation",
        **beat | {"generation_id": 99},
        member_id=member,
    )
    both.ask(ApiKey.HEARTBEAT, low[ApiKey.HEARTBEAT], "beat, unknown member", **beat, member_id="x")
    both.ask(
        ApiKey.HEARTBEAT, low[ApiKey.HEARTBEAT], "beat, unknown group", **beat | {"group_id": "nobody"}, member_id="x"
    )
    both.ask(ApiKey.JOIN_GROUP, version, "join with another type", **joining | {"protocol_type": "connect"})
    for at in versions(ApiKey.OFFSET_COMMIT) if version == VERSIONS[11][1] else ():
        commit(both, at, "of a member", group, member, generation)
        commit(both, at, "of another generation", group, member, 99)
        commit(both, at, "of nobody in a group that lives", group, "", -1)
    if version == VERSIONS[11][1]:
        return  # the last one does not leave
    for label, who in (("unknown", "x"), ("member", member), ("again", member)):
        named = lambda peer, who=who: [{"member_id": who(peer) if callable(who) else who}]  # noqa: E731
        both.ask(
            ApiKey.LEAVE_GROUP, low[ApiKey.LEAVE_GROUP], f"leave, {label}", group_id=group, member_id=who, members=named
        )
    both.ask(ApiKey.DESCRIBE_GROUPS, low[ApiKey.DESCRIBE_GROUPS], "describe the end", groups=[group])
