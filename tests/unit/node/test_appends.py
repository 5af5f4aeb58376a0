"""What waits for appends of the node's own, by token."""

from __future__ import annotations

import pytest

from klamm.node.coordinators.appends import Appends
from klamm.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (0, ErrorCode.NONE),
        (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        # The high watermark has passed it. The state of a shard must not be rolled back.
        (int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), ErrorCode.NONE),
        # A panic of the append thread: the batch may be in the log.
        (int(ErrorCode.UNKNOWN_SERVER_ERROR), None),
        (None, None),
    ],
)
def test_an_append_has_one_result(code: int | None, result: ErrorCode | None) -> None:
    appends, results = Appends(), list[ErrorCode | None]()
    token = appends.add(results.append)
    appends.on_acked(token, code)
    appends.on_acked(token, code)
    assert results == [result]
