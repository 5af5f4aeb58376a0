"""A topic as the coordinators and handlers of a broker need it."""

from __future__ import annotations

from typing import NamedTuple


class TopicInfo(NamedTuple):
    """A topic of the metadata; its id has 16 bytes."""

    name: str
    topic_id: bytes
    partition_count: int
