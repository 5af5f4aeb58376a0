"""AlterReplicaLogDirs (34) and DescribeLogDirs (35)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from klamm.broker.request import RequestContext
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value
from klamm.protocol.wire.codec import (
    build,
    decode_request,
    encode,
)
from klamm.protocol.wire.kio_classes import response_class

UNKNOWN_SIZE: Final = -1
FOLDER_NAME_MAX: Final = 255
FUTURE_SUFFIX_BYTES: Final = len(".") + 32 + len("-future")
"""The length of the suffix of a future replica's folder, after topic and partition."""


class LogDirInfo(Value):
    """A log directory; sizes in bytes, -1 unknown. `replicas` are (topic, partition, size, offset lag, is future)."""

    path: str
    error: ErrorCode
    replicas: Sequence[tuple[str, int, int, int, bool]]
    total_bytes: int = UNKNOWN_SIZE
    usable_bytes: int = UNKNOWN_SIZE
    is_cordoned: bool = False


class LogDirs(Protocol):
    """The log directories of this broker."""

    def describe(self) -> Sequence[LogDirInfo]:
        """Their state now."""
        ...

    async def alter(self, path: str, topic: str, partition: int) -> ErrorCode:
        """Move a partition to the directory with this path."""
        ...


class LogDirHandlers:
    """Serves the APIs of this file."""

    def __init__(self, dirs: LogDirs) -> None:
        self._dirs = dirs

    async def alter_replica_log_dirs(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Begin to move partitions to other log directories (KIP-113); a partition that is named twice moves once."""
        request = decode_request(ApiKey.ALTER_REPLICA_LOG_DIRS, version, body)
        wanted = {
            (topic.name, partition): found.path
            for found in request.dirs
            for topic in found.topics
            for partition in topic.partitions
        }
        results: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), path in wanted.items():
            row = {"partition_index": partition, "error_code": await self._alter(path, topic, partition)}
            results.setdefault(topic, []).append(row)
        response = response_class(ApiKey.ALTER_REPLICA_LOG_DIRS, version)
        rows = [{"topic_name": topic, "partitions": rows} for topic, rows in results.items()]
        return encode(build(response, results=rows))

    async def _alter(self, path: str, topic: str, partition: int) -> ErrorCode:
        if len(f"{topic}-{partition}") + FUTURE_SUFFIX_BYTES > FOLDER_NAME_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return await self._dirs.alter(path, topic, partition)

    async def describe_log_dirs(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """Every directory with the wanted partitions in it (null: all of them), and the sizes of its volume (v4)."""
        request = decode_request(ApiKey.DESCRIBE_LOG_DIRS, version, body)
        wanted: dict[str, set[int]] | None = None
        if request.topics is not None:
            wanted = {}
            for item in request.topics:
                wanted.setdefault(item.topic, set()).update(item.partitions)
        results = [self._result(info, wanted) for info in self._dirs.describe()]
        answer = build(response_class(ApiKey.DESCRIBE_LOG_DIRS, version), error_code=ErrorCode.NONE, results=results)
        return encode(answer)

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
            "is_cordoned": info.is_cordoned,
        }
