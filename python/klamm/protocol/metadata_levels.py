"""The levels of metadata.version that Kafka 4.3 knows (`MetadataVersion`)."""

from __future__ import annotations

from typing import Final

from klamm.protocol.value import Value


class MetadataLevel(Value):
    """A level of metadata.version: its name, and whether leaving it downwards would lose metadata."""

    level: int
    name: str
    changes_metadata: bool


METADATA_LEVELS: Final = tuple(
    MetadataLevel(level, name, changes_metadata)
    for level, name, changes_metadata in (
        (1, "3.0-IV1", True),
        (2, "3.1-IV0", False),
        (3, "3.2-IV0", True),
        (4, "3.3-IV0", False),
        (5, "3.3-IV1", True),
        (6, "3.3-IV2", True),
        (7, "3.3-IV3", True),
        (8, "3.4-IV0", True),
        (9, "3.5-IV0", False),
        (10, "3.5-IV1", False),
        (11, "3.5-IV2", True),
        (12, "3.6-IV0", False),
        (13, "3.6-IV1", True),
        (14, "3.6-IV2", True),
        (15, "3.7-IV0", True),
        (16, "3.7-IV1", False),
        (17, "3.7-IV2", True),
        (18, "3.7-IV3", False),
        (19, "3.7-IV4", False),
        (20, "3.8-IV0", False),
        (21, "3.9-IV0", False),
        (22, "4.0-IV0", False),
        (23, "4.0-IV1", True),
        (24, "4.0-IV2", False),
        (25, "4.0-IV3", False),
        (26, "4.1-IV0", False),
        (27, "4.1-IV1", False),
        (28, "4.2-IV0", False),
        (29, "4.2-IV1", False),
        (30, "4.3-IV0", True),
    )
)
"""Every production level up to Kafka 4.3 (`MetadataVersion`)."""
