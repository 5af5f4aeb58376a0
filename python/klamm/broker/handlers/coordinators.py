"""FindCoordinator (10)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from klamm.broker.request import RequestContext
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.coordinators import FindCoordinatorRequest, FoundCoordinator
from klamm.protocol.messages.groups import FIND_MANY_VERSION, write_find_coordinator
from klamm.protocol.value import Value
from klamm.protocol.wire.codec import read

log = logging.getLogger("klamm.broker.coordinators")

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2
"""`group:topicId:partition`, for brokers (KIP-932)."""
SHARE_KEY_VERSION: Final = 6


class Endpoint(Value):
    """A broker, as clients of one listener reach it."""

    node_id: int
    host: str
    port: int


class InternalTopics(Protocol):
    """The cluster's metadata as FindCoordinator uses it."""

    def exists(self, topic: str) -> bool:
        """Whether the topic is in the metadata."""
        ...

    def create(self, topic: str) -> None:
        """Ask the controller for an internal topic, unless that is under way. Does not wait."""
        ...

    def leader(self, topic: str, partition: int, listener: str) -> Endpoint | None:
        """The leader of the partition, if there is one that is alive."""
        ...


Placement = tuple[str, Callable[[str], int]]
"""An internal topic, and the partition of it that a key belongs to; ValueError refuses a key."""


class CoordinatorHandlers:
    """Serves the API of this file."""

    def __init__(self, topics: InternalTopics, placements: Mapping[int, Placement]) -> None:
        """`placements` are those of each type of key that is supported."""
        self._topics, self._placements = topics, placements

    async def find_coordinator(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The broker that leads a key's partition; the topic is created at the first request."""
        request = read(FindCoordinatorRequest, version, body)
        keys: Sequence[str] = request.coordinator_keys if version >= FIND_MANY_VERSION else (request.key,)
        if request.key_type == SHARE_KEY and version < SHARE_KEY_VERSION:
            return write_find_coordinator(version, [FoundCoordinator(key, ErrorCode.INVALID_REQUEST) for key in keys])
        return write_find_coordinator(version, [self._find(context, request.key_type, key) for key in keys])

    def _find(self, context: RequestContext, key_type: int, key: str) -> FoundCoordinator:
        if key_type not in self._placements:
            kind = f"coordinators of type {key_type}"
            log.info("no coordinator for %r of %s: %s are not supported yet", key, context.address, kind)
            return FoundCoordinator(key, ErrorCode.INVALID_REQUEST, f"{kind} are not supported yet")
        topic, partition_for = self._placements[key_type]
        try:
            partition = partition_for(key)
        except ValueError as error:
            log.info("no coordinator for %r of %s: %s", key, context.address, error)
            return FoundCoordinator(key, ErrorCode.INVALID_REQUEST)
        unavailable = FoundCoordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not self._topics.exists(topic):
            self._topics.create(topic)
            return unavailable
        found = self._topics.leader(topic, partition, context.listener)
        if found is None:
            return unavailable
        return FoundCoordinator(key, ErrorCode.NONE, node_id=found.node_id, host=found.host, port=found.port)
