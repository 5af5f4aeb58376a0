"""DescribeLogDirs (35) and AlterReplicaLogDirs (34)."""

from __future__ import annotations

from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

UNKNOWN_SIZE = -1


class DescribableLogDirTopic(Value):
    """Partitions of a topic to describe."""

    topic: str
    partitions: tuple[int, ...]


class DescribeLogDirsRequest(Value):
    """DescribeLogDirs (35); None: all topics."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_LOG_DIRS
    topics: tuple[DescribableLogDirTopic, ...] | None = None


class LogDirPartition(Value):
    """A partition in a log directory."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool
    """It is a copy that is to replace the partition's log in another directory."""


class LogDirTopic(Value):
    """Partitions of one topic in a log directory."""

    name: str
    partitions: tuple[LogDirPartition, ...]


class LogDir(Value):
    """A log directory of a broker; sizes of its volume in bytes, -1 unknown."""

    error_code: ErrorCode
    log_dir: str
    topics: tuple[LogDirTopic, ...]
    total_bytes: int = UNKNOWN_SIZE
    usable_bytes: int = UNKNOWN_SIZE
    is_cordoned: bool = False


class DescribeLogDirsResponse(Value):
    """DescribeLogDirs (35)."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_LOG_DIRS
    results: tuple[LogDir, ...]
    error_code: ErrorCode = ErrorCode.NONE


class AlterReplicaLogDirTopic(Value):
    """Partitions of a topic to move."""

    name: str
    partitions: tuple[int, ...]


class AlterReplicaLogDir(Value):
    """A log directory, and the partitions to move there."""

    path: str
    topics: tuple[AlterReplicaLogDirTopic, ...]


class AlterReplicaLogDirsRequest(Value):
    """AlterReplicaLogDirs (34)."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_REPLICA_LOG_DIRS
    dirs: tuple[AlterReplicaLogDir, ...]


class AlterReplicaLogDirPartitionResult(Value):
    """Whether the move of a partition has begun."""

    partition_index: int
    error_code: ErrorCode


class AlterReplicaLogDirTopicResult(Value):
    """Whether the moves of a topic's partitions have begun."""

    topic_name: str
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...]


class AlterReplicaLogDirsResponse(Value):
    """AlterReplicaLogDirs (34)."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_REPLICA_LOG_DIRS
    results: tuple[AlterReplicaLogDirTopicResult, ...]
