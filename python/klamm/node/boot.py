"""The first half of a start, which the engine does by itself: see `_engine.Boot` (ARCHITECTURE.md: a start).

Imports little, so that `klamm start` imports the rest while the engine reads the directories and tells versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from klamm._engine import Boot, Engine, Image, MetadataLog, find_config_key
from klamm.config.listeners import Listener
from klamm.config.node_config import NodeConfig
from klamm.formats.directories import METADATA_FOLDER, DirectoryLocks, open_directories
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.named_tuple import NamedTuple

ListenerRow = tuple[str, str, int, bool]


class Booted(NamedTuple):
    """A node before any decision. Each image goes with the offset after its last record."""

    cluster_id: str
    directory_ids: Mapping[Path, bytes]
    """The id of each directory that works."""
    locks: DirectoryLocks
    engine: Engine
    log: MetadataLog
    snapshot: tuple[Image, int]
    """The newest snapshot, or nothing up to where the log begins."""
    whole: tuple[Image, int] | None
    """All that the log holds, where that is known to be committed."""
    listeners: Mapping[str, tuple[str, int]]
    """Where each listener is: the bound port where the configuration says 0."""

    def abandon(self) -> None:
        """Close it and leave it as it was found."""
        self.locks.release()
        self.log.close()
        self.engine.shutdown(self.engine.previous_broker_epoch)


class Booting:
    """A node that boots. Nothing is changed on disk before the directories are known to be right."""

    def __init__(self, config: NodeConfig, *, is_volatile: bool = False) -> None:
        """Begin. Raises StorageError, OSError. Volatile: the files need not survive a power cut."""
        opened = open_directories(config)
        self._config, self._opened, self._is_mine = config, opened, True
        ids = opened.directory_ids
        log_dirs = [(path, ids[path]) for path in config.partition_dirs if path in ids]
        try:
            self._boot = Boot(
                node_id=config.node_id,
                cluster_id=opened.cluster_id,
                log_dirs=log_dirs,
                settings=known(config.given),
                metadata_dir=config.metadata_log_dir / METADATA_FOLDER,
                segment_bytes=config.integer("metadata.log.segment.bytes"),
                segment_ms=config.integer("metadata.log.segment.ms"),
                listeners=[listener_row(config, listener) for listener in _in_order(config)],
                features=supported_features(),
                static_voters=list(config.voters),
                is_volatile=is_volatile,
                is_missing_dirs=len(log_dirs) < len(config.partition_dirs),
            )
        except BaseException:  # whatever stops a start, Ctrl-C too, must not keep the locks
            opened.locks.release()
            raise

    def finish(self) -> Booted:
        """Wait for it. Raises StorageError or OSError after undoing everything."""
        opened = self._opened
        try:
            engine, log, snapshot, whole, addresses = self._boot.finish(_partition_error)
        except BaseException:  # the same, with the thread and the listeners
            self.abandon()
            raise
        self._is_mine = False
        listeners = {
            listener.name: (listener.host or host, port)
            for listener, (host, port) in zip(_in_order(self._config), addresses, strict=True)
        }
        return Booted(opened.cluster_id, opened.directory_ids, opened.locks, engine, log, snapshot, whole, listeners)

    def abandon(self) -> None:
        """Close what was begun and leave it as it was found. Nothing happens when it was finished."""
        if self._is_mine:
            try:
                self._boot.abandon()
            finally:
                self._opened.locks.release()


def known(given: Mapping[str, str]) -> dict[str, str]:
    """The keys that the engine's table has."""
    return {name: value for name, value in given.items() if find_config_key("node", name) is not None}


def supported_features() -> list[tuple[str, int, int]]:
    """Name, lowest and highest level of what this node knows."""
    return [(name, levels.min_version, levels.max_version) for name, levels in SUPPORTED_FEATURES.items()]


def _partition_error(code: int, message: str | None) -> Exception:
    from klamm.protocol.errors import ErrorCode, KafkaError  # loaded by then: a start does not wait for it

    return KafkaError(ErrorCode(code), message)


def _in_order(config: NodeConfig) -> tuple[Listener, ...]:
    return (*config.controller_listeners, *config.client_listeners)


def listener_row(config: NodeConfig, listener: Listener) -> ListenerRow:
    """A listener as the engine takes it."""
    return listener.name, listener.host, listener.port, listener.name in config.controller_listener_names
