"""How a shard takes one record of its partition's log while it loads."""

from __future__ import annotations

from typing import Final

from klamm.coordinator.group_log import LoadedRecord
from klamm.coordinator.records import SHORT, decode
from klamm.coordinator.shard import Shard

COMMIT_MARKER: Final = 1


def replay(shard: Shard, record: LoadedRecord) -> None:
    """Apply it. Raises RecordError for a record that cannot be decoded."""
    if record.is_control:
        if len(record.key) >= 4:
            (marker,) = SHORT.unpack_from(record.key, 2)
            shard.replay_transaction_end(record.producer_id, marker == COMMIT_MARKER)
    else:
        shard.replay(record.offset, record.producer_id, decode(record.key, record.value))
