"""The first half of a start, which the engine runs by itself: see `_engine.node.Boot` and ARCHITECTURE.md (a start).

This module imports little, so that `klamm start` imports the rest while the engine reads the log directories.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from klamm._engine.client import Conditions
from klamm._engine.config import find_config_key
from klamm._engine.metadata import Image
from klamm._engine.node import Boot, Engine
from klamm._engine.quorum import MetadataLog
from klamm.config.listeners import Listener
from klamm.config.node_config import NodeConfig
from klamm.formats.directories import METADATA_FOLDER, DirectoryLocks, open_directories
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.value import Value

ListenerRow = tuple[str, str, int, bool]


class Booted(Value):
    """The result of a boot. Each image comes with the offset after its last record."""

    cluster_id: str
    directory_ids: Mapping[Path, bytes]
    """The id of each working log directory."""
    locks: DirectoryLocks
    engine: Engine
    log: MetadataLog
    snapshot: tuple[Image, int]
    """The newest snapshot, or an empty image at the log start offset."""
    whole: tuple[Image, int] | None
    """The image of the whole log, if all of the log is known to be committed."""
    listeners: Mapping[str, tuple[str, int]]
    """The address of each listener, with the bound port if the configuration says 0."""
    conditions: Conditions | None
    """The conditions of a node of an embedded cluster."""

    def abandon(self) -> None:
        """Undo the boot: close everything and leave the files as they were."""
        self.locks.release()
        self.log.close()
        self.engine.shutdown(self.engine.previous_broker_epoch)


class Booting:
    """A boot in progress. It changes nothing on disk before it has validated the directories."""

    def __init__(self, config: NodeConfig, *, is_volatile: bool = False, conditions: Conditions | None = None) -> None:
        """Start the boot. Raises StorageError, OSError.

        `is_volatile`: files need not survive a power failure. `conditions`: those of a node of an embedded cluster.
        """
        self._conditions = conditions
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
                conditions=conditions,
            )
        except BaseException:  # release the locks whatever stops the start, Ctrl-C too
            opened.locks.release()
            raise

    def finish(self) -> Booted:
        """Wait for the boot. Raises StorageError or OSError after undoing everything."""
        opened = self._opened
        try:
            engine, log, snapshot, whole, addresses = self._boot.finish(_partition_error)
        except BaseException:  # also stop the thread and close the listeners
            self.abandon()
            raise
        self._is_mine = False
        listeners = {
            listener.name: (listener.host or host, port)
            for listener, (host, port) in zip(_in_order(self._config), addresses, strict=True)
        }
        return Booted(
            opened.cluster_id,
            opened.directory_ids,
            opened.locks,
            engine,
            log,
            snapshot,
            whole,
            listeners,
            self._conditions,
        )

    def abandon(self) -> None:
        """Undo the boot: close everything and leave the files as they were. No effect after `finish`."""
        if self._is_mine:
            try:
                self._boot.abandon()
            finally:
                self._opened.locks.release()


def known(given: Mapping[str, str]) -> dict[str, str]:
    """The keys that the engine's configuration table contains."""
    return {name: value for name, value in given.items() if find_config_key("node", name) is not None}


def supported_features() -> list[tuple[str, int, int]]:
    """Name, lowest and highest supported level of each feature."""
    return [(name, levels.min_version, levels.max_version) for name, levels in SUPPORTED_FEATURES.items()]


def _partition_error(code: int, message: str | None) -> Exception:
    from klamm.protocol.errors import ErrorCode, KafkaError  # already imported when this runs; not needed for a start

    return KafkaError(ErrorCode(code), message)


def _in_order(config: NodeConfig) -> tuple[Listener, ...]:
    return (*config.controller_listeners, *config.client_listeners)


def listener_row(config: NodeConfig, listener: Listener) -> ListenerRow:
    """A listener in the form that the engine expects."""
    return listener.name, listener.host, listener.port, listener.name in config.controller_listener_names
