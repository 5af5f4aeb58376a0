"""A group's coordinator moves while a broker still returns the previous one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.unit.cli.fake_broker import FakeBroker

from klamm.admin.client import Client
from klamm.admin.groups import committed_offsets
from klamm.admin.membership import membership
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode

GROUP = "team"


class Coordinator:
    """A broker that returns the coordinators in turn, and serves the group only if it coordinates it."""

    def __init__(self, *, is_coordinator: bool) -> None:
        self._error = ErrorCode.NONE if is_coordinator else ErrorCode.NOT_COORDINATOR
        self.named: Iterator[FakeBroker] = iter(())
        self.broker = FakeBroker(
            {
                ApiKey.FIND_COORDINATOR: (0, 3, self._find),
                ApiKey.OFFSET_FETCH: (1, 5, self._offsets),
                ApiKey.DESCRIBE_GROUPS: (0, 5, self._describe),
            }
        )

    def _find(self, request: Any, version: int) -> Mapping[str, object]:
        found = next(self.named)
        host, port = found.address.split(":")
        return {
            "throttle_time": 0,
            "error_code": ErrorCode.NONE,
            "node_id": int(port),
            "host": host,
            "port": int(port),
        }

    def _offsets(self, request: Any, version: int) -> Mapping[str, object]:
        partition = {"partition_index": 0, "committed_offset": 7, "metadata": "", "error_code": ErrorCode.NONE}
        topics = [] if self._error else [{"name": "work", "partitions": [partition]}]
        return {"topics": topics, "error_code": self._error}

    def _describe(self, request: Any, version: int) -> Mapping[str, object]:
        group = {
            "error_code": self._error,
            "group_id": GROUP,
            "group_state": "Stable",
            "protocol_type": "consumer",
            "protocol_data": "range",
            "members": [],
        }
        return {"groups": [group]}


@pytest.mark.parametrize("ask", [committed_offsets, membership])
def test_the_new_coordinator_is_looked_up(ask: Callable[[Client, str], object]) -> None:
    before, after = Coordinator(is_coordinator=False), Coordinator(is_coordinator=True)
    before.named = iter([before.broker, after.broker])
    with before.broker, after.broker, Client(before.broker.address) as client:
        assert ask(client, GROUP)
    assert after.broker.requests[-1][0] in (ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS)
