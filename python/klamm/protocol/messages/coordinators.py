"""FindCoordinator: which broker coordinates a group.

Field names are the schemas' own, so that `codec.read` and `codec.write` match them; a field that a version lacks keeps
the default that stands here.
"""

from __future__ import annotations

from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value


class FindCoordinatorRequest(Value):
    """API 10; below version 4 `coordinator_keys` is empty and `key` counts."""

    API_KEY: ClassVar[int] = ApiKey.FIND_COORDINATOR
    key: str = ""
    key_type: int = 0
    coordinator_keys: tuple[str, ...] = ()


class FoundCoordinator(Value):
    """Where the coordinator of a key is; node id -1, host "" and port -1 with an error."""

    key: str
    error_code: int = ErrorCode.NONE
    error_message: str | None = ""
    node_id: int = -1
    host: str = ""
    port: int = -1


class FindCoordinatorResponse(Value):
    """API 10's response; below version 4 for one key, whose fields are not in the list."""

    API_KEY: ClassVar[int] = ApiKey.FIND_COORDINATOR
    coordinators: tuple[FoundCoordinator, ...] = ()
    error_code: int = ErrorCode.NONE
    error_message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1
    throttle_time_ms: int = 0
