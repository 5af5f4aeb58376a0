"""Sends a request in any version to Apache Kafka and to klamm, and compares the responses."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import socket
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class, response_class
from tests.support.frames import read_frame, send_frame
from tests.support.waiting import wait_until

VERSIONS = {key: api.versions for key, api in APIS.items() if {api.on_broker, api.on_controller} & {"engine", "python"}}
"""What klamm serves: lowest and highest version by API key."""

DIFFERENT = frozenset(
    {
        "api_keys",
        "client_host",
        "cluster_id",
        "finalized_features",
        "finalized_features_epoch",
        "host",
        "last_caught_up_timestamp",
        "last_fetch_timestamp",
        "last_timestamp",
        "leader",
        "log_append_time",
        "log_dir",
        "log_end_offset",
        "member_id",
        "port",
        "producer_id",
        "replica_directory_id",
        "session_id",
        "throttle_time",
        "total_bytes",
        "usable_bytes",
    }
)
"""Fields whose values are a node's own."""

DIFFERENT_OF = {55: frozenset({"high_watermark"})}
"""The same of one API: where the metadata log is."""

NAMES = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "index",
    "resource_type",
    "resource_name",
    "group_id",
    "partition_index",
    "key",
    "producer_id",
    "partition_id",
    "entity_type",
    "entity",
)
Fields = Mapping[str, Any]
"""A request's fields; a value may be a function of the peer that is asked."""


class Peer:
    """A connection to one of the two, with its topic ids."""

    def __init__(self, port: int, client_id: bytes = b"me") -> None:
        self._client_id = client_id
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.last: dict[str, Any] = {}
        """The answer to `Both.ask`'s last request."""

    def ask(self, key: int, version: int, fields: Fields) -> dict[str, Any]:
        """The response as plain values."""
        values = {name: value(self) if callable(value) else value for name, value in fields.items()}
        request, response = request_class(key, version), response_class(key, version)
        body = encode(build(request, **values))
        tags = b"\0" if request.__flexible__ else b""
        frame = struct.pack(">hhih", key, version, 7, len(self._client_id)) + self._client_id + tags + body
        send_frame(self._socket, frame)
        answer = read_frame(self._socket)
        # ApiVersions responses have the old header in every version, so that any client can read them (KIP-511).
        header_len = 5 if response.__flexible__ and key != ApiKey.API_VERSIONS else 4
        found: dict[str, Any] = self._plain(decode_response(key, version, answer[header_len:]))
        return found

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def topic(self, name: str) -> uuid.UUID:
        """The topic's id on this node; a random id for an unknown topic."""
        return self.topic_ids.get(name, uuid.UUID(int=9))

    def learn_topics(self) -> None:
        """Fetch the ids of all topics."""
        self.topic_ids = {
            topic["name"]: topic["topic_id"]
            for topic in self.ask(ApiKey.METADATA, 12, {"topics": None})["topics"]
            if topic["name"]
        }

    def leads_all(self) -> bool:
        """Whether the first partition of each topic in the metadata has a leader that serves it."""
        asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": name, "partitions": [asked]} for name in self.topic_ids]
        answer = self.ask(ApiKey.LIST_OFFSETS, 6, {"replica_id": -1, "topics": topics})
        return all(one["error_code"] == "NONE" for topic in answer["topics"] for one in topic["partitions"])

    def _plain(self, value: Any) -> Any:
        match value:
            case tuple():
                return [self._plain(item) for item in value]
            case enum.Enum():
                return value.name
            case datetime.timedelta():
                return value // datetime.timedelta(milliseconds=1)
            case _ if dataclasses.is_dataclass(value):
                return {field.name: self._plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
            case _:
                return value


class Both:
    """Sends requests to both, and keeps the differences."""

    def __init__(self, kafka: Peer, klamm: Peer) -> None:
        self.kafka, self.klamm = kafka, klamm
        self.differences: dict[str, list[int]] = {}
        self.count = 0

    def ask(self, key: int, version: int, label: str, /, **fields: Any) -> dict[str, Any]:
        """Send one version; returns Kafka's response."""
        theirs, ours = self.kafka.ask(key, version, fields), self.klamm.ask(key, version, fields)
        self.count += 1
        for difference in self._compare(theirs, ours, "", DIFFERENT | DIFFERENT_OF.get(key, frozenset())):
            self.differences.setdefault(f"API {key}, {label}: {difference}", []).append(version)
        self.kafka.last, self.klamm.last = theirs, ours
        return theirs

    def learn_topics(self) -> None:
        """After topics were made or deleted: wait until both show the same and lead them; what their ids are."""

        def are_same() -> bool:
            for peer in (self.kafka, self.klamm):
                peer.learn_topics()
            same = self.kafka.topic_ids.keys() == self.klamm.topic_ids.keys()
            return same and self.kafka.leads_all() and self.klamm.leads_all()

        wait_until(are_same, lambda: (self.kafka.topic_ids, self.klamm.topic_ids), bound_s=60)

    def every(self, key: int, label: str, /, *, since: int = 0, below: int = 99, **fields: Any) -> None:
        """Send every version from `since` up to, not including, `below`. `own` gives fields by version."""
        own: Callable[[int], Fields] = fields.pop("own", lambda _: {})
        for version in versions(key, since, below):
            self.ask(key, version, label, **fields, **own(version))

    def until(self, key: int, version: int, fields: Fields) -> None:
        """Ask until both have what they need for it: a coordinator, a block of ids."""
        for peer in (self.kafka, self.klamm):
            ask = partial(peer.ask, key, version, fields)
            wait_until(lambda ask=ask: ask()["error_code"] == "NONE", (key, fields), bound_s=60)

    def _compare(self, theirs: Any, ours: Any, path: str, skipped: frozenset[str]) -> Iterator[str]:
        if isinstance(theirs, dict) and isinstance(ours, dict):
            for name in theirs.keys() - skipped:
                if name.endswith("error_message"):
                    if theirs[name] is not None and (ours[name] is None or bool(theirs[name]) > bool(ours[name])):
                        yield f"{path}.{name}: Kafka {theirs[name]!r}, klamm {ours[name]!r}"
                else:
                    yield from self._compare(theirs[name], ours[name], f"{path}.{name}", skipped)
        elif isinstance(theirs, list) and isinstance(ours, list):
            if len(theirs) != len(ours):
                yield f"{path}: Kafka {theirs}, klamm {ours}"
            else:
                pairs = zip(self._ordered(self.kafka, theirs), self._ordered(self.klamm, ours), strict=True)
                for at, pair in enumerate(pairs):
                    yield from self._compare(*pair, f"{path}[{at}]", skipped)
        elif self._named(self.kafka, theirs) != self._named(self.klamm, ours):
            yield f"{path}: Kafka {theirs!r}, klamm {ours!r}"

    @classmethod
    def _ordered(cls, peer: Peer, items: list[Any]) -> list[Any]:
        """Sort what Kafka often returns in the order of a hash table."""
        if items and isinstance(items[0], dict):
            return sorted(items, key=lambda item: [str(cls._named(peer, item.get(name))) for name in NAMES])
        return items

    @staticmethod
    def _named(peer: Peer, value: Any) -> Any:
        """Replace an id by the name of its resource, and sort the parts of a quota entity."""
        if isinstance(value, list):
            return sorted(map(str, value))
        if not isinstance(value, uuid.UUID):
            return value
        return next((name for name, known in peer.topic_ids.items() if known == value), "an id")


def versions(key: int, since: int = 0, below: int = 99) -> range:
    lowest, highest = VERSIONS[key]
    return range(max(lowest, since), min(highest + 1, below))
