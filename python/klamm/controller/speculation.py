"""The state from which requests are decided: the image, including uncommitted records, and what is derived from it.

Managers read it and return records; only `replay` changes it, for this controller's own uncommitted records as well as
for those of earlier controllers. It is dropped when the epoch is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from klamm._engine.metadata import Image
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import METADATA_VERSION
from klamm.protocol.generated.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode,
    encode_at,
)
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.topic_names import collision_key

_WATCHED: Final = frozenset(
    cls.TYPE for cls in (ConfigRecord, RegisterBrokerRecord, UnregisterBrokerRecord, TopicRecord, RemoveTopicRecord)
)


class TopicNames:
    """Which topics collide: names that become one when '.' counts as '_'. Only names with either are kept."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_key: dict[str, str | set[str]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """A topic was created."""
        key = collision_key(name)
        if key is None:
            return
        known = self._by_key.setdefault(key, name)
        if isinstance(known, set):
            known.add(name)
        elif known != name:
            self._by_key[key] = {known, name}

    def remove(self, name: str) -> None:
        """A topic was deleted."""
        key = collision_key(name)
        if key is None:
            return
        known = self._by_key.get(key)
        if isinstance(known, set):
            known.discard(name)
        if not known or known == name:
            self._by_key.pop(key, None)

    def colliding(self, name: str) -> str | None:
        """A topic whose name collides with this new one's, if there is one."""
        key = collision_key(name)
        known = self._by_key.get(key) if key is not None else None
        return min(known) if isinstance(known, set) else known


class Speculation:
    """The speculative image and its indexes.

    1. `image` is the committed one plus every record after it that this controller has appended.
    2. `next_offset` is the offset after the last of them. It is the epoch that a new broker gets.
    3. `node_configs_version` changes whenever a node's or the cluster's dynamic configs do.
    """

    def __init__(self, image: Image, next_offset: int) -> None:
        self.image = image
        self.next_offset = next_offset
        self.node_configs_version = 0
        self._names: TopicNames | None = None
        # A broker that is older than this controller's time counts as registered now: it has to replay a little more
        # before it is unfenced, never less.
        self._registered_at = dict.fromkeys(image.broker_ids(), next_offset - 1)

    @property
    def names(self) -> TopicNames:
        """The collision index, built at its first use."""
        if self._names is None:
            self._names = TopicNames(self.image.topic_names())
        return self._names

    @property
    def metadata_version(self) -> int:
        """The finalized level. Raises if there is none yet, as before the bootstrap records."""
        level = self.image.metadata_version
        if level is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{METADATA_VERSION} is not in the log yet")
        return level

    def registration_offset(self, broker_id: int) -> int:
        """The offset up to which a broker must have replayed to know its own registration."""
        return self._registered_at[broker_id]

    def encode(self, record: MetadataRecord) -> bytes:
        """The record in the version of the finalized level."""
        return encode_at(record, self.metadata_version)

    def check_broker_epoch(self, broker_id: int, epoch: int) -> None:
        """Raises STALE_BROKER_EPOCH unless the broker is registered with this epoch."""
        broker = self.image.broker(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != epoch:
            text = f"Expected broker epoch {broker.epoch} of broker {broker_id}, but got broker epoch {epoch}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)

    def configs(self, resource_type: ResourceType, name: str) -> dict[str, str]:
        """The stored configs of a resource."""
        return self.image.configs(resource_type, name)

    def replay(self, records: Sequence[bytes], first_offset: int, after: Image) -> None:
        """Apply `records`, which are in the log from `first_offset` on; `after` is the image with them."""
        for offset, record in enumerate(records, first_offset):
            # Frame version and type are one byte each: no type is above 127.
            if record[1] in _WATCHED:
                self._watch(offset, record)
        self.image = after
        self.next_offset = first_offset + len(records)

    def _watch(self, offset: int, data: bytes) -> None:
        if data[1] == TopicRecord.TYPE and (self._names is None or not (b"." in data or b"_" in data)):
            return  # most names collide with none, and a record is decoded in the time of many such looks
        match decode(data):
            case RegisterBrokerRecord() as record:
                self._registered_at[record.broker_id] = offset
            case UnregisterBrokerRecord() as record:
                self._registered_at.pop(record.broker_id, None)
            case ConfigRecord(resource_type=ResourceType.BROKER):
                self.node_configs_version += 1
            case TopicRecord() as record if self._names is not None:
                self._names.add(record.name)
            case RemoveTopicRecord() as record if self._names is not None:
                name = self.image.topic_name(record.topic_id)
                if name is not None:
                    self._names.remove(name)
