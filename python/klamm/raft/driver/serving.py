"""The other replicas' requests: from bytes to the core, and its answer to bytes."""

from __future__ import annotations

from collections.abc import Callable

from klamm.protocol.errors import ErrorCode
from klamm.raft.driver.raft_driver import RaftDriver
from klamm.raft.effects import Read
from klamm.raft.log.metadata_log import MetadataLog
from klamm.raft.messages import Response
from klamm.raft.replication.reading import with_bytes
from klamm.raft.wire.requests import decode_request
from klamm.raft.wire.responses import encode_refusal, encode_response, encode_shape_refusal

Give = Callable[[Callable[[], bytes]], None]
"""Receives the function that creates a response's body. Called once, now or later, or never when the replica stops."""


class RaftRequests:
    """Answers Fetch, Vote, BeginQuorumEpoch, EndQuorumEpoch and FetchSnapshot for one replica."""

    def __init__(self, driver: RaftDriver, log: MetadataLog, cluster_id: str) -> None:
        self._driver, self._log, self._cluster_id = driver, log, cluster_id

    def handle(self, api_key: int, version: int, body: bytes, listener: str, give: Give) -> None:
        """Process a request that arrived on `listener`. Raises MalformedRequest, RaftStoppedError."""
        received = decode_request(api_key, version, body)
        if received.message is None:
            # As Kafka does, the cluster is looked at first.
            if received.cluster_id not in (None, self._cluster_id):
                give(lambda: encode_refusal(api_key, version, ErrorCode.INCONSISTENT_CLUSTER_ID))
            else:
                give(lambda: encode_shape_refusal(api_key, version, received))
            return

        def reply(response: Response, read: Read | None) -> None:
            give(lambda: encode_response(with_bytes(self._log, response, read), version, listener))

        self._driver.handle_request(received.message, reply)
