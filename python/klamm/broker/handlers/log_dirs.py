"""DescribeLogDirs (35)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm.broker.request import RequestContext
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value
from klamm.protocol.wire.codec import (
    build,
    decode_request,
    encode_response,
)
from klamm.protocol.wire.kio_classes import response_class

UNKNOWN_SIZE: Final = -1


class LogDirInfo(Value):
    """A log directory; sizes in bytes, -1 unknown. `replicas` are (topic, partition, size, offset lag, is future)."""

    path: str
    error: ErrorCode
    replicas: Sequence[tuple[str, int, int, int, bool]]
    total_bytes: int = UNKNOWN_SIZE
    usable_bytes: int = UNKNOWN_SIZE


class LogDirHandlers:
    """Serves the API of this file from `describe`, which reads the directories' state now."""

    def __init__(self, describe: Callable[[], Sequence[LogDirInfo]]) -> None:
        self._describe = describe

    async def describe_log_dirs(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Every directory with the wanted partitions in it (null: all of them), and the sizes of its volume (v4)."""
        request = decode_request(ApiKey.DESCRIBE_LOG_DIRS, version, body)
        wanted: dict[str, set[int]] | None = None
        if request.topics is not None:
            wanted = {}
            for item in request.topics:
                wanted.setdefault(item.topic, set()).update(item.partitions)
        results = [self._result(info, wanted) for info in self._describe()]
        answer = build(response_class(ApiKey.DESCRIBE_LOG_DIRS, version), error_code=ErrorCode.NONE, results=results)
        return encode_response(answer)

    def _result(self, info: LogDirInfo, wanted: dict[str, set[int]] | None) -> dict[str, Any]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, partition, size, lag, is_future in info.replicas:
            if wanted is None or partition in wanted.get(topic, ()):
                row = {
                    "partition_index": partition,
                    "partition_size": size,
                    "offset_lag": lag,
                    "is_future_key": is_future,
                }
                topics.setdefault(topic, []).append(row)
        return {
            "error_code": info.error,
            "log_dir": info.path,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
            "total_bytes": info.total_bytes,
            "usable_bytes": info.usable_bytes,
        }
