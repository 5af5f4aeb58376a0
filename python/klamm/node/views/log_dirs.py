"""The engine's log directories as `LogDirHandlers` needs them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence

from klamm._engine.metadata import Image
from klamm._engine.node import Engine
from klamm.broker.handlers.log_dirs import LogDirInfo
from klamm.protocol.errors import ErrorCode
from klamm.protocol.features import CORDONED_LOG_DIRS_LEVEL


class LogDirs:
    """The log directories of a broker, by absolute path."""

    def __init__(self, engine: Engine, image: Callable[[], Image], directories: Mapping[str, bytes | None]) -> None:
        """`directories` are all that are configured, with their ids; None: it could not be read."""
        self._engine, self._image, self._directories = engine, image, directories

    def describe(self) -> Sequence[LogDirInfo]:
        """The directories with their partitions and the sizes of their volumes."""
        rows = {row[1]: row for row in self._engine.log_dirs()}
        level = self._image().metadata_version or 0
        found = []
        for path, directory_id in self._directories.items():
            row = None if directory_id is None else rows.get(directory_id)
            if row is None or row[2] is not None:
                found.append(LogDirInfo(path, ErrorCode.KAFKA_STORAGE_ERROR, ()))
                continue
            *_, is_cordoned, replicas = row
            volume = shutil.disk_usage(path)
            is_cordoned = is_cordoned and level >= CORDONED_LOG_DIRS_LEVEL
            found.append(LogDirInfo(path, ErrorCode.NONE, replicas, volume.total, volume.free, is_cordoned))
        return found

    async def alter(self, path: str, topic: str, partition: int) -> ErrorCode:
        """Move a partition to the directory with this path."""
        if path not in self._directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        directory_id = self._directories[path]
        if directory_id is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        # It may recover a log, and it creates files.
        return ErrorCode(await asyncio.to_thread(self._engine.alter_log_dir, topic, partition, directory_id))
