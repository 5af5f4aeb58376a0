"""The kinds of groups of the new protocols that are served: their records, and how these are decoded and applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

from klamm.coordinator.groups.consumer import records as consumer_records
from klamm.coordinator.groups.consumer import replay as consumer_replay
from klamm.coordinator.groups.consumer.records import ConsumerRecord
from klamm.coordinator.groups.modern.journal import Journal
from klamm.coordinator.groups.modern.registry import ModernGroups
from klamm.coordinator.groups.modern.target import NewTargets, apply_targets
from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.share import records as share_records
from klamm.coordinator.groups.share import replay as share_replay
from klamm.coordinator.groups.share.records import ShareRecord
from klamm.coordinator.groups.streams import records as streams_records
from klamm.coordinator.groups.streams import replay as streams_replay
from klamm.coordinator.groups.streams.records import StreamsRecord
from klamm.coordinator.runtime.record_reader import RecordReader

ModernRecord = ConsumerRecord | ShareRecord | StreamsRecord
"""A record of a group of the new protocols."""

Decoder = Callable[[RecordReader, RecordReader | None], ModernRecord]
DECODERS: Final[dict[RecordType, Decoder]] = {
    **consumer_records.DECODERS,
    **share_records.DECODERS,
    **streams_records.DECODERS,
}
"""By type: decodes a record from its key after the type and its value after the version."""


_APPLY: Final[dict[type, Callable[[ModernGroups, Journal, Any], None]]] = {
    **dict.fromkeys(get_args(ConsumerRecord), consumer_replay.apply),
    **dict.fromkeys(get_args(ShareRecord), share_replay.apply),
    StreamsRecord: streams_replay.apply,
    NewTargets: apply_targets,
}


def apply(groups: ModernGroups, journal: Journal, record: ModernRecord | NewTargets) -> None:
    """Apply a record from the log, or what is newly written. Raises RecordError if it does not fit the state."""
    _APPLY[type(record)](groups, journal, record)
