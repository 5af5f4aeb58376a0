"""The engine's log directories as DescribeLogDirs needs them."""

from __future__ import annotations

import shutil

from klamm._engine.node import Engine
from klamm.broker.handlers.log_dirs import LogDirInfo
from klamm.protocol.errors import ErrorCode


def describe_log_dirs(engine: Engine) -> list[LogDirInfo]:
    """The log directories with their open partitions and the sizes of their volumes."""
    found = []
    for path, _, failure, sizes in engine.log_dirs():
        if failure is not None:
            found.append(LogDirInfo(str(path), ErrorCode.KAFKA_STORAGE_ERROR, ()))
            continue
        volume = shutil.disk_usage(path)
        replicas = [(topic, partition, size, 0, False) for topic, partition, size in sizes]
        found.append(LogDirInfo(str(path), ErrorCode.NONE, replicas, volume.total, volume.free))
    return found
